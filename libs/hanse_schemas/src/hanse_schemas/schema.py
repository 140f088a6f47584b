"""A project's declared schema: what every site's data must look like before it joins its first task."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.base import Frozen
from hanse_schemas.study import ColumnName

LARGEST_WEIGHT = 1e6
"""Of a row's weight in training, as of a class's."""
MOST_BOUNDS = 30
"""Of bands: they and those of whom the number is missing are 32 groups."""
Bound = Annotated[float, Field(allow_inf_nan=False)]
MOST_TARGET_BOUNDS = 33


def _ends(given: tuple[float, ...]) -> tuple[float, ...]:
    if given and (len(given) < 2 or any(upper <= lower for lower, upper in pairwise(given))):
        raise ValueError(f"{list(given)}, two bounds or more that ascend were expected")
    return given


TargetBounds = Annotated[
    tuple[Bound, ...],
    Field(max_length=MOST_TARGET_BOUNDS, exclude_if=lambda given: not given),
    AfterValidator(_ends),
]
Text = Annotated[str, Field(min_length=1, max_length=200)]
ColumnKind = Literal["number", "category", "boolean", "date", "text"]


class Column(Frozen):
    """A column of tabular data. `minimum` and `maximum` bound its values.

    Attributes:
        name: as the head of the file has it.
        minimum, maximum: of numbers: a site whose column has others is refused, with its name.
        dtype: of numbers.
        kind: what the cells are; a column of kind `text` is left out of what models see.
        values: of a category, in their order; none: they are not declared.
        formats: of dates, as `datetime.strptime` has them; none: ISO 8601 (2026-03-31), 31.3.2026 or 3/31/2026,
            where a column shows which is the month.
        unit: of measurement, for people: `mmol/l`.
        bands: of numbers: bounds, ascending, between which metrics may be told of as of groups: [40, 60] makes three.
    """

    name: str = Field(min_length=1, max_length=200)
    dtype: Literal["float", "integer"] = "float"
    minimum: float | None = None
    maximum: float | None = None
    kind: ColumnKind = Field(default="number", exclude_if=lambda given: given == "number")  # since 0.2.0
    values: tuple[Text, ...] = Field(default=(), max_length=1000, exclude_if=lambda given: not given)  # since 0.2.0
    formats: tuple[Text, ...] = Field(default=(), max_length=8, exclude_if=lambda given: not given)  # since 0.2.0
    unit: Text | None = Field(default=None, exclude_if=lambda given: given is None)  # since 0.2.0
    bands: tuple[Bound, ...] = Field(
        default=(), max_length=MOST_BOUNDS, exclude_if=lambda given: not given
    )  # since 0.2.0

    @model_validator(mode="after")
    def _of_its_kind(self) -> Column:
        """Raise ValueError for what belongs to another kind."""
        if self.kind != "number" and (self.dtype, self.minimum, self.maximum) != ("float", None, None):
            raise ValueError(f"column {self.name}: dtype, minimum and maximum belong to numbers, it is a {self.kind}")
        if self.values and self.kind != "category":
            raise ValueError(f"column {self.name}: values belong to a category, it is a {self.kind}")
        if self.bands and self.kind != "number":
            raise ValueError(f"column {self.name}: bands belong to a number, it is a {self.kind}")
        if any(upper <= lower for lower, upper in pairwise(self.bands)):
            raise ValueError(f"column {self.name}: bands: {list(self.bands)}, bounds that ascend were expected")
        if self.formats and self.kind != "date":
            raise ValueError(f"column {self.name}: formats belong to a date, it is a {self.kind}")
        if {"%d/%m/%Y", "%m/%d/%Y"} <= set(self.formats):
            raise ValueError(f"column {self.name}: formats: 1/2/2026 has both %d/%m/%Y and %m/%d/%Y, one was expected")
        if twice := sorted({value for value in self.values if self.values.count(value) > 1}):
            raise ValueError(f"column {self.name}: value {twice[0]!r} is there twice")
        return self


class Label(Frozen):
    """A class.

    Attributes:
        name: what people call it.
        cells: how files write it beside its name.
    """

    name: Text
    cells: tuple[Text, ...] = Field(default=(), max_length=100, exclude_if=lambda given: not given)

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, given: Any) -> Any:
        return {"name": given} if isinstance(given, str) else given


class TabularSchema(Frozen):
    """Rows of named columns with a target. For classification `classes` counts labels 0 .. classes-1.

    Attributes:
        features: the columns that models may see.
        target: the column that is learnt.
        task: whether the target is a class or a number.
        classes: how many there are; None: as many as labels.
        labels: the classes in their order, where files have them as texts: names, or `name` and `cells`.
        target_bounds: of a regression, where its values are ordinarily: the ends, and bounds between them where values
            crowd ([0, 5, 10, 30, 365] of days). By these, and by no other bounds, sites count for `concordance`.
        unit: column that says whose a row is (patient, person, device), as text or numbers: what `dp_sgd` hides is a
            unit with all its rows then. None: each row is one.
        weight: column of numbers from 0 to `LARGEST_WEIGHT`: how much a row counts in the loss of jobs with
            `train.sample_weights`. None: there is none.
    """

    kind: Literal["tabular"] = "tabular"
    features: tuple[Column, ...] = Field(min_length=1)
    target: str
    task: Literal["classification", "regression"] = "classification"
    classes: int | None = Field(default=None, ge=2)
    unit: ColumnName | None = Field(default=None, exclude_if=lambda given: given is None)  # since 0.2.0
    weight: ColumnName | None = Field(default=None, exclude_if=lambda given: given is None)  # since 0.2.0
    labels: tuple[Label, ...] = Field(default=(), max_length=1000, exclude_if=lambda given: not given)  # since 0.2.0
    target_bounds: TargetBounds = ()  # since 0.2.0

    @model_validator(mode="before")
    @classmethod
    def _as_many(cls, given: Any) -> Any:
        """As many classes as there are labels, where their number is not said."""
        labels = given.get("labels") if isinstance(given, Mapping) else None
        return {**given, "classes": len(labels)} if labels and given.get("classes") is None else given

    @model_validator(mode="after")
    def _labelled(self) -> TabularSchema:
        """Raise ValueError for labels that are not one for each class, or not apart."""
        if self.labels and self.task != "classification":
            raise ValueError(f"labels: they belong to a classification, the task is {self.task}")
        _check_regression(self.target_bounds, self.task)
        if self.labels and self.classes != len(self.labels):
            raise ValueError(f"labels: {len(self.labels)}, one for each of {self.classes} classes was expected")
        written = [text for label in self.labels for text in (label.name, *label.cells)]
        if twice := sorted({text for text in written if written.count(text) > 1}):
            raise ValueError(f"labels: {twice[0]!r} is there twice")
        return self

    @property
    def class_names(self) -> tuple[str, ...]:
        """What the classes are called, in their order; none: by their numbers."""
        return tuple(label.name for label in self.labels)

    @model_validator(mode="after")
    def _apart(self) -> TabularSchema:
        taken = {self.target, *(column.name for column in self.features)}
        if self.unit in taken:
            raise ValueError(f"unit: {self.unit} is a feature or the target, expected a column of its own")
        if self.weight is not None and self.weight in {*taken, self.unit}:
            raise ValueError(
                f"weight: {self.weight} is a feature, the target or the unit, expected a column of its own"
            )
        return self

    @property
    def beside(self) -> tuple[str, ...]:
        """Columns that are neither features nor the target."""
        return tuple(name for name in (self.unit, self.weight) if name is not None)

    @property
    def for_tests(self) -> TabularSchema:
        """Of files of test data: see the function `for_tests`."""
        return self.model_copy(update={"unit": None, "weight": None})


class ArraySchema(Frozen):
    """Arrays `x` (n, *shape) and `y` (n,), as in NPZ files; images are (channels, height, width) or (height, width).

    Attributes:
        shape: of one example.
        task: whether the target is a class or a number.
        classes: how many there are, of a classification.
        minimum, maximum: of the values of `x`.
        target_bounds: see `TabularSchema`.
        unit: says whose an example is: an array (n,) of NPZ files, a column of an image folder's `units.csv`, or the
            third array of a site's own `load()`; see `TabularSchema`.
    """

    kind: Literal["array"] = "array"
    shape: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1, max_length=4)
    task: Literal["classification", "regression"] = "classification"
    classes: int | None = Field(default=None, ge=2)
    minimum: float | None = None
    maximum: float | None = None
    unit: ColumnName | None = Field(default=None, exclude_if=lambda given: given is None)  # since 0.2.0
    target_bounds: TargetBounds = ()  # since 0.2.0

    @model_validator(mode="after")
    def _apart(self) -> ArraySchema:
        _check_regression(self.target_bounds, self.task)
        if self.unit in ("x", "y"):
            raise ValueError(f"unit: {self.unit} is the examples or the targets, expected an array of its own")
        return self


class GenotypesSchema(Frozen):
    """PLINK files (.bed, .bim, .fam) and, beside them, columns of phenotypes and covariates.

    Attributes:
        assembly: of the genome that positions count on (`GRCh38`), for people: no file says it.
        phenotypes, covariates: columns that every site's phenotype and covariate file must have.
    """

    kind: Literal["genotypes"] = "genotypes"
    assembly: str | None = Field(default=None, max_length=64)
    phenotypes: tuple[ColumnName, ...] = Field(default=(), max_length=256)
    covariates: tuple[ColumnName, ...] = Field(default=(), max_length=256)


class OpenSchema(Frozen):
    """The site's own `load()` knows; nothing is checked but that there are examples."""

    kind: Literal["open"] = "open"


LearnableSchema = TabularSchema | ArraySchema | OpenSchema
"""What models are trained on."""
DataSchema = Annotated[TabularSchema | ArraySchema | GenotypesSchema | OpenSchema, Field(discriminator="kind")]


def _check_regression(target_bounds: tuple[float, ...], task: str) -> None:
    if target_bounds and task != "regression":
        raise ValueError(f"target_bounds: they belong to a regression, the task is {task}")


def target_bounds_of(schema: DataSchema | None) -> tuple[float, ...]:
    """Where the values that are learnt are ordinarily; none: the schema does not say."""
    return schema.target_bounds if isinstance(schema, TabularSchema | ArraySchema) else ()


def unit_of(schema: DataSchema) -> str | None:
    """The column or array that says whose an example is; None: each is one of its own."""
    return schema.unit if isinstance(schema, TabularSchema | ArraySchema) else None


def for_tests(schema: LearnableSchema) -> LearnableSchema:
    """The schema of test data: it does not matter whose they are, and each counts alike."""
    if isinstance(schema, TabularSchema):
        return schema.for_tests
    return schema.model_copy(update={"unit": None}) if isinstance(schema, ArraySchema) else schema


def learnable(schema: DataSchema) -> LearnableSchema:
    """The schema, where models can be trained on such data.

    Raises:
        HanseError: SCHEMA_MISMATCH for genotypes.
    """
    if isinstance(schema, GenotypesSchema):
        raise HanseError(
            ErrorCode.SCHEMA_MISMATCH, "schema.kind: the project has genotypes, no model is trained on these",
            hint="workflow: association_study is for them; training wants a project of its own",
        )  # fmt: skip
    return schema
