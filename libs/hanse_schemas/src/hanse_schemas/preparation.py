"""`Preparation`: all that turns a raw table into what a model sees. It is JSON, and part of a model as its weights are.

Loads no numpy; `hanse_learning.preparation` applies it.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal, assert_never

from pydantic import Field, model_validator

from hanse_fabric.canonical import canonical
from hanse_fabric.messages.base import Frozen
from hanse_schemas.schema import Column, TabularSchema

Name = Annotated[str, Field(min_length=1, max_length=200)]
Value = Annotated[str, Field(min_length=1, max_length=200)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
MISSING, OTHER = "missing", "other"
MOST_FEATURES = 4096


class PreparedNumber(Frozen):
    """A number x, of a boolean 0 or 1, of a date days since 1970: (x - centre) / scale, of which sign(x) log(1 + |x|)
    is taken before where `log` says so.

    Attributes:
        formats: of dates; see `hanse_schemas.schema.Column`.
        fill: stands for a missing cell, after the logarithm; None: a missing cell is refused.
        indicator: whether a further column is 1 where the cell is missing, else 0.
    """

    kind: Literal["number", "boolean", "date"]
    name: Name
    formats: tuple[Value, ...] = ()
    log: bool = False
    fill: Finite | None = None
    indicator: bool = False
    centre: Finite = 0.0
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the columns that it becomes."""
        return (self.name, f"{self.name}:{MISSING}") if self.indicator else (self.name,)


class PreparedCategory(Frozen):
    """A category; see `hanse_schemas.prepare.CategoryRule`.

    Attributes:
        values: that have a place, in their order.
        buckets: of form hashed.
        missing: what a missing cell becomes.
    """

    kind: Literal["category"]
    name: Name
    form: Literal["onehot", "ordinal", "hashed"]
    values: tuple[Value, ...] = Field(default=(), max_length=1000)
    buckets: int = Field(default=0, ge=0, le=1024)
    unknown: Literal["zeros", "other", "refuse"] = "zeros"
    missing: Literal["own", "unknown", "refuse"] = "unknown"

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the columns that it becomes: its values (or buckets, or its place), others, missing."""
        match self.form:
            case "onehot":
                told = [f"{self.name}={value}" for value in self.values]
            case "ordinal":
                told = [self.name]
            case "hashed":
                told = [f"{self.name}#{bucket}" for bucket in range(self.buckets)]
        # By these names, not by the values': a category may have a value `missing`.
        told += [f"{self.name}:{OTHER}"] if self.has_other else []
        return (*told, f"{self.name}:{MISSING}") if self.missing == "own" else tuple(told)

    @property
    def has_other(self) -> bool:
        """Whether unknown values have a column of their own. Of hashed values, none is unknown."""
        return self.unknown == "other" and self.form != "hashed"


class PreparedText(Frozen):
    """A column that the model does not see."""

    kind: Literal["text"]
    name: Name

    @property
    def outputs(self) -> tuple[str, ...]:
        """None."""
        return ()


PreparedColumn = Annotated[PreparedNumber | PreparedCategory | PreparedText, Field(discriminator="kind")]


class Preparation(Frozen):
    """What becomes of the columns of a raw table, in the order in which the model sees them.

    Attributes:
        version: of this form.
    """

    version: Literal[1] = 1
    columns: tuple[PreparedColumn, ...] = Field(min_length=1, max_length=1000)

    @model_validator(mode="after")
    def _has_features(self) -> Preparation:
        """Raise ValueError where nothing is left to see, or two features have one name."""
        outputs = self.outputs
        if not 0 < len(outputs) <= MOST_FEATURES:
            raise ValueError(f"columns: they become {len(outputs)} features, 1 to {MOST_FEATURES} were expected")
        if len(set(outputs)) < len(outputs):
            twice = next(name for name in outputs if outputs.count(name) > 1)
            raise ValueError(f"columns: two features are called {twice}")
        return self

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the features that the model sees."""
        return tuple(name for column in self.columns for name in column.outputs)

    @property
    def lenient(self) -> Preparation:
        """The same, by which no cell is refused: it is as an unknown value, or as the column's centre."""
        return self.model_copy(update={"columns": tuple(map(_lenient, self.columns))})

    @property
    def digest(self) -> str:
        """SHA-256 of its canonical JSON, in hexadecimal."""
        return hashlib.sha256(canonical(self.model_dump(mode="json"))).hexdigest()


def _lenient(column: PreparedColumn) -> PreparedColumn:
    match column:
        case PreparedNumber(fill=None):
            return column.model_copy(update={"fill": column.centre})
        case PreparedCategory():
            kept = {"unknown": column.unknown, "missing": column.missing}
            instead = {"unknown": "zeros", "missing": "unknown"}
            return column.model_copy(
                update={name: instead[name] if said == "refuse" else said for name, said in kept.items()}
            )
        case PreparedNumber() | PreparedText():
            return column
        case unknown:
            assert_never(unknown)


def prepared_schema(schema: TabularSchema, preparation: Preparation) -> TabularSchema:
    """The schema of the features that a model sees."""
    return schema.model_copy(update={"features": tuple(Column(name=name) for name in preparation.outputs)})
