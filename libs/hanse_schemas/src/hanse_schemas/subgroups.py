"""Groups of test examples by a column, such as sex or a band of ages: a job's `evaluate.subgroups`. Loads no numpy.

The groups are the values, or the bands of a number, that the project's schema names, so that nobody can move a bound by
one patient and look at the difference; examples of other values, or of none, are one group more.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, assert_never

from pydantic import Field

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.base import Frozen
from hanse_schemas.preparation import Name, Value
from hanse_schemas.schema import MOST_BOUNDS, Bound, DataSchema, TabularSchema

MOST_GROUPS = 32
REST = "missing or other"


class Subgroups(Frozen):
    """The section.

    Attributes:
        column: a category, a boolean, or a number with bands, of the project's schema.
        smallest: of groups with fewer test examples (of any class) nothing is told, nor what would tell it.
        kind, values, bands: of the column, as the schema has it; the hub writes them into a submitted job.
    """

    column: Name
    smallest: int = Field(default=20, ge=5, le=1_000_000)
    kind: Literal["category", "boolean", "number"] | None = None
    values: tuple[Value, ...] = Field(default=(), max_length=MOST_GROUPS - 1)
    bands: tuple[Bound, ...] = Field(default=(), max_length=MOST_BOUNDS, exclude_if=lambda given: not given)

    @property
    def labels(self) -> tuple[str, ...]:
        """What the groups are called."""
        match self.kind:
            case "boolean":
                return ("false", "true", REST)
            case "number":
                return (*_in_words(self.bands), REST)
            case "category" | None:  # None: the hub has not completed it
                return (*self.values, REST)
            case unknown:
                assert_never(unknown)


def _in_words(bands: tuple[float, ...]) -> tuple[str, ...]:
    """What the groups between bounds are called: a bound itself is of the group above it."""
    written = [f"{bound:.17g}" if float(f"{bound:.12g}") != bound else f"{bound:.12g}" for bound in bands]
    between = [f"{lower} to below {upper}" for lower, upper in pairwise(written)]
    return (f"below {written[0]}", *between, f"{written[-1]} or more")


def completed_subgroups(given: Subgroups, schema: DataSchema | None) -> Subgroups:
    """The section with the groups that the schema names.

    Raises:
        HanseError: INVALID_INPUT where it names none.
    """
    columns = schema.features if isinstance(schema, TabularSchema) else ()
    column = next((each for each in columns if each.name == given.column), None)
    if column is None:
        named = ", ".join(each.name for each in columns if each.kind in ("category", "boolean") or each.bands)
        raise invalid(
            "evaluate.subgroups.column", given.column,
            f"a category, boolean or number with bands, of the schema: {named or '-'}",
        )  # fmt: skip
    most = MOST_GROUPS - 1
    bare = given.model_copy(update={"kind": None, "values": (), "bands": ()})
    if column.kind == "boolean":
        return bare.model_copy(update={"kind": "boolean"})
    if column.kind == "number":
        if column.bands and given.bands in ((), column.bands):
            return bare.model_copy(update={"kind": "number", "bands": column.bands})
        raise invalid(
            "evaluate.subgroups", f"{column.name}, a number of bands {list(given.bands or column.bands)}",
            f"the bands of the project's schema: {list(column.bands) or '-'}",
            hint=f"in the project's schema: {{name: {column.name}, bands: [40, 60]}}; a job cannot choose them, lest "
            "it move a bound by one person and look at the difference",
        )  # fmt: skip
    if column.kind != "category" or not 0 < len(column.values) <= most:
        raise invalid(
            "evaluate.subgroups.column", f"{column.name}, a {column.kind} of {len(column.values)} named values",
            f"a boolean, a number with bands, or a category whose values the schema names, {most} at most",
        )  # fmt: skip
    return bare.model_copy(update={"kind": "category", "values": column.values})


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
