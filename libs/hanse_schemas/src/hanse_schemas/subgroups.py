"""Groups of test examples by a column, such as sex or a band of ages: a job's `evaluate.subgroups`. Loads no numpy.

The groups are the values that the project's schema names, so that nobody can move a bound by one patient and look at
the difference; examples of other values, or of none, are one group more.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.base import Frozen
from hanse_schemas.preparation import Name, Value
from hanse_schemas.schema import DataSchema, TabularSchema

MOST_GROUPS = 32
REST = "missing or other"


class Subgroups(Frozen):
    """The section.

    Attributes:
        column: a category or boolean of the project's schema.
        smallest: of groups with fewer test examples (of any class) nothing is told, nor what would tell it.
        kind, values: of the column, as the schema has it; the hub writes them into a submitted job.
    """

    column: Name
    smallest: int = Field(default=20, ge=5, le=1_000_000)
    kind: Literal["category", "boolean"] | None = None
    values: tuple[Value, ...] = Field(default=(), max_length=MOST_GROUPS - 1)

    @property
    def labels(self) -> tuple[str, ...]:
        """What the groups are called."""
        return (*(("false", "true") if self.kind == "boolean" else self.values), REST)


def completed_subgroups(given: Subgroups, schema: DataSchema | None) -> Subgroups:
    """The section with the groups that the schema names.

    Raises:
        HanseError: INVALID_INPUT where it names none.
    """
    columns = schema.features if isinstance(schema, TabularSchema) else ()
    column = next((each for each in columns if each.name == given.column), None)
    if column is None:
        named = ", ".join(each.name for each in columns if each.kind in ("category", "boolean"))
        raise invalid("evaluate.subgroups.column", given.column, f"a category or boolean of the schema: {named or '-'}")
    most = MOST_GROUPS - 1
    if column.kind == "boolean":
        return given.model_copy(update={"kind": "boolean", "values": ()})
    if column.kind != "category" or not 0 < len(column.values) <= most:
        raise invalid(
            "evaluate.subgroups.column", f"{column.name}, a {column.kind} of {len(column.values)} named values",
            f"a boolean, or a category whose values the schema names, {most} at most",
            hint="bands of a number are a column of their own, so that groups are the same for every job",
        )  # fmt: skip
    return given.model_copy(update={"kind": "category", "values": column.values})


def check_declared(given: Subgroups, schema: DataSchema) -> None:
    """Check that a site is asked of groups that its project has declared, and of no others.

    Raises:
        HanseError: SCHEMA_MISMATCH.
    """
    try:
        declared = completed_subgroups(given, schema)
    except HanseError:
        declared = None
    if declared != given:
        raise HanseError(
            ErrorCode.SCHEMA_MISMATCH, "evaluate.subgroups: they are not of a column of the project's schema",
            hint="the hub changed one of them: enrol the site again, or submit the job again",
        )  # fmt: skip
