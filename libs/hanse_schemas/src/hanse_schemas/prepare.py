"""How raw columns become what a model sees: a job's section `prepare`, and `Preparation`, what was found for it.

The section says what is wanted: `numbers` and `categories` for all columns of a kind, `columns` for single ones. The
hub completes it with the project's schema, so that a run's job names every column. Loads no numpy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Literal, assert_never

from pydantic import Field, TypeAdapter, ValidationError, ValidationInfo, field_validator, model_validator

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.base import Frozen
from hanse_fabric.messages.explained import explain
from hanse_fabric.messages.nearest import meant
from hanse_schemas import metrics
from hanse_schemas.preparation import Finite, Name, Preparation, Value, prepared_schema
from hanse_schemas.schema import Column, DataSchema, TabularSchema
from hanse_schemas.subgroups import completed_subgroups
from hanse_schemas.target_bounds import check_needed, completed_bounds

if TYPE_CHECKING:
    from hanse_schemas.job import Job


class NumberRule(Frozen):
    """How a column of numbers is prepared; booleans (0 and 1) and dates (days since 1970) are numbers.

    Attributes:
        constant: what stands for a missing cell where `missing` is `constant`.
        scale: `standard`: by mean and standard deviation; `robust`: by the median and the distance of the quartiles, of
            the cells that are there; `minmax`: from the schema's minimum and maximum to 0 and 1.
        log: take sign(x) log(1 + |x|) first.
        missing: what stands for a missing cell: the mean, the median, `constant`, or nothing (`refuse`).
        indicator: whether a further column says which cells were missing; `auto`: where any site has missing ones.
        clip: in jobs with a section `privacy`: ends to which cells are cut while they are summed with noise, of dates
            such as 2026-03-31 or in days since 1970; None: the schema's minimum and maximum.
    """

    name: Name
    kind: Literal["number", "boolean", "date"]
    scale: Literal["standard", "robust", "minmax", "none"] = "standard"
    log: bool = False
    missing: Literal["mean", "median", "constant", "refuse"] = "mean"
    constant: float = Field(default=0.0, allow_inf_nan=False)
    indicator: bool | Literal["auto"] = "auto"
    clip: tuple[Finite, Finite] | None = None
    minimum: float | None = None
    maximum: float | None = None
    formats: tuple[Value, ...] = Field(default=(), max_length=8)

    @field_validator("clip", mode="before")
    @classmethod
    def _in_days(cls, given: Any, known: ValidationInfo) -> Any:
        """Dates as days since 1970."""
        if known.data.get("kind") != "date" or not isinstance(given, list | tuple):
            return given
        days = [date.fromisoformat(end) if isinstance(end, str) else end for end in given]
        return tuple((end - date(1970, 1, 1)).days if isinstance(end, date) else end for end in days)

    @model_validator(mode="after")
    def _has_ends(self) -> NumberRule:
        """Raise ValueError for minmax without ends."""
        ends = self.minimum is not None and self.maximum is not None and self.minimum < self.maximum
        if self.scale == "minmax" and not ends:
            raise ValueError("scale minmax needs the column's minimum and maximum in the project's schema")
        if self.clip is not None and not self.clip[0] < self.clip[1]:
            raise ValueError(f"clip: {list(self.clip)}, two numbers that ascend were expected")
        return self

    @property
    def ends(self) -> tuple[float, float] | None:
        """To which cells are cut while they are summed with noise; None: nobody says it."""
        if self.kind == "boolean":
            return (0.0, 1.0)
        if self.clip is not None or self.minimum is None or self.maximum is None or not self.minimum < self.maximum:
            return self.clip
        return (self.minimum, self.maximum)

    @property
    def measured(self) -> bool:
        """Whether sums of the column's numbers are needed."""
        return self.scale == "standard" or self.missing == "mean"

    @property
    def asks_moments(self) -> bool:
        """Whether anything is asked of the column: its sums, or how many cells are missing."""
        return self.measured or bool(self.quantiles) or self.indicator == "auto"

    @property
    def quantiles(self) -> tuple[Fraction, ...]:
        """Those that are needed of the column's numbers."""
        if self.scale == "robust":
            return (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))
        return (Fraction(1, 2),) if self.missing == "median" else ()


class CategoryRule(Frozen):
    """How a column of categories is prepared.

    Attributes:
        buckets: columns of the form `hashed`.
        form: `onehot`: a column of 0 and 1 for each value; `ordinal`: the value's place among them, from 0; `hashed`: a
            column of 0 and 1 for each of `buckets`, by a digest of the value.
        unknown: what a value that is none of these becomes: 0 everywhere, a column of its own (`other`), or refused.
        rare: values that fewer rows have, over all sites, are unknown.
        missing: what a missing cell becomes: a column of its own (`auto`: where any site has missing ones), an unknown
            value, or refused.
    """

    name: Name
    kind: Literal["category"]
    form: Literal["onehot", "ordinal", "hashed"] = "onehot"
    values: tuple[Value, ...] = Field(default=(), max_length=1000)
    unknown: Literal["zeros", "other", "refuse"] = "zeros"
    rare: int = Field(default=0, ge=0)
    missing: Literal["auto", "own", "unknown", "refuse"] = "auto"
    buckets: int = Field(default=32, ge=2, le=1024)

    @property
    def asks_moments(self) -> bool:
        """Whether it is asked how many cells are missing."""
        return self.missing == "auto"

    @property
    def counted(self) -> bool:
        """Whether it is asked how many rows have each value."""
        return self.rare > 0 and self.form != "hashed"


class TextRule(Frozen):
    """A column that models do not see."""

    name: Name
    kind: Literal["text"]


Rule = NumberRule | CategoryRule | TextRule
_RULE: TypeAdapter[Rule] = TypeAdapter(Annotated[Rule, Field(discriminator="kind")])
_GIVEN = frozenset({"name", "kind"})
_SAID = frozenset({"minimum", "maximum", "values", "formats"})
"""What the project's schema says of a column."""
_OF_NUMBERS = frozenset(NumberRule.model_fields) - _GIVEN - _SAID
_OF_CATEGORIES = frozenset(CategoryRule.model_fields) - _GIVEN - _SAID
MOST_COLUMNS = 300
"""Of a table that is prepared, so that what is found of them travels with every task."""


MOST_CLASSES = 1000
"""Whose rows are counted."""


def is_balanced(train: Mapping[str, Any]) -> bool:
    """Whether a section `train` wants its classes to count alike."""
    loss = train.get("loss")
    return isinstance(loss, Mapping) and loss.get("class_weights") == "balanced"


class Prepare(Frozen):
    """The section `prepare` of a job.

    Attributes:
        numbers, categories: settings of `NumberRule` and `CategoryRule` for all columns of a kind.
        columns: settings of single columns, each with its `name`; of a submitted job all of them, in the schema's
            order.
        fitted: what an earlier run has found; None: this run finds it.
        classes: of a submitted job whose `class_weights` are `balanced`: of how many the rows are counted, too.
    """

    numbers: dict[str, Any] = {}
    categories: dict[str, Any] = {}
    columns: tuple[dict[str, Any], ...] = Field(default=(), max_length=MOST_COLUMNS)
    fitted: Preparation | None = Field(default=None, exclude_if=lambda given: given is None)
    classes: int | None = Field(default=None, ge=2, le=MOST_CLASSES, exclude_if=lambda given: given is None)

    @model_validator(mode="after")
    def _known(self) -> Prepare:
        """Raise ValueError for settings that are none."""
        _check_known("numbers", self.numbers, _OF_NUMBERS)
        _check_known("categories", self.categories, _OF_CATEGORIES)
        names = [str(column.get("name")) for column in self.columns]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"columns: {twice[0]} is there twice")
        for column in self.columns:
            if not column.get("name"):
                raise ValueError("columns: one has no name")
            _check_known(f"columns: {column['name']}", column, _OF_NUMBERS | _OF_CATEGORIES | _GIVEN | _SAID)
        return self

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules of all columns, of a job that was submitted.

        Raises:
            HanseError: INVALID_INPUT where the section was not completed with the project's schema.
        """
        if not self.columns:
            raise invalid(
                "prepare.columns", None, "the list of all columns, which the hub takes from the project's schema"
            )
        return rules_of(list(self.columns))


def completed(prepare: Prepare, schema: TabularSchema) -> Prepare:
    """The section with the rule of every column of the schema, in its order.

    Raises:
        HanseError: INVALID_INPUT naming the column, its value and what was expected.
    """
    if len(schema.features) > MOST_COLUMNS:
        raise invalid(
            "prepare", f"{len(schema.features)} columns", f"at most {MOST_COLUMNS} columns", hint="or prepare: none"
        )
    own = {str(column["name"]): column for column in prepare.columns}
    if strangers := sorted(own.keys() - {column.name for column in schema.features}):
        raise invalid("prepare.columns", strangers[0], "a column of the project's schema")
    rules = [_of_column(column, prepare, own.get(column.name, {})) for column in schema.features]
    return Prepare(
        columns=tuple(rule.model_dump(mode="json", exclude_defaults=True) for rule in rules), fitted=prepare.fitted
    )


def rules_of(columns: object) -> tuple[Rule, ...]:
    """The rules of columns, as they stand in a submitted job and in tasks.

    Raises:
        HanseError: INVALID_INPUT naming the column, its value and what was expected.
    """
    if not isinstance(columns, list | tuple) or not columns or len(columns) > MOST_COLUMNS:
        raise invalid("prepare.columns", columns, f"a list of 1 to {MOST_COLUMNS} columns")
    return tuple(_rule(column if isinstance(column, Mapping) else {}) for column in columns)


def completed_job(job: Job, schema: DataSchema | None) -> Job:
    """A job as it is submitted, with how every column is prepared and what is counted of. A built-in model of raw
    columns is given a default preparation; not where a section `privacy` counts what sites tell, or the model has been
    trained on something already.

    Raises:
        HanseError: INVALID_INPUT naming what does not fit the schema.
    """
    return with_counts(_with_charge(_with_preparation(job, schema)), schema)


def asks_sums(rules: Iterable[Rule], classes: int | None = None) -> bool:
    """Whether the preparation depends on the sites' data, and not on what job and schema say alone."""
    return bool(classes) or any(
        (not isinstance(rule, TextRule) and rule.asks_moments) or (isinstance(rule, CategoryRule) and rule.counted)
        for rule in rules
    )


def _with_charge(job: Job) -> Job:
    """A private job with what its preparation's sums cost, where it needs them and does not say it."""
    prepare, privacy = job.prepare, job.privacy
    if privacy is None or privacy.preparation is not None or not isinstance(prepare, Prepare):
        return job
    if prepare.fitted is not None or not asks_sums(prepare.rules, prepare.classes):
        return job
    return job.model_copy(update={"privacy": privacy.model_copy(update={"preparation": privacy.usual_preparation})})


def with_counts(job: Job, schema: DataSchema | None) -> Job:
    """A job with what its evaluations count: the metric to stop by is among them where it is made of counts, and how
    many classes there are is told by the schema, else by the model's outputs. One of a table that says nothing is
    given what people ask for of such a task, as far as the sites' policies allow it."""
    asked, names = job.evaluate, job.evaluate.named
    if job.stop is not None and (counted := metrics.counted_for(job.stop.metric)) and counted not in names:
        names = (*names, counted)
    classes, optional = _classes(job, schema), asked.optional
    if not names and classes is not None and _has_defaults(job, schema):
        task: metrics.Task = "classification" if classes else "regression"
        names = metrics.by_default(task, classes, noisy=job.privacy is not None)
        optional = True
    check_needed(asked.bounds, names)
    if not metrics.families(names):
        return job
    groups = None if asked.subgroups is None else completed_subgroups(asked.subgroups, schema)
    bounds = completed_bounds(asked.bounds, schema) if classes == 0 and "concordance" in names else ()
    told = asked.model_copy(
        update={"metrics": names, "classes": classes, "optional": optional, "subgroups": groups, "bounds": bounds}
    )  # fmt: skip
    return job if told == asked else job.model_copy(update={"evaluate": told})


def _has_defaults(job: Job, schema: DataSchema | None) -> bool:
    """Sites of release 0.1.0 can be in no masked sum with counts, but they are in none of a prepared table either."""
    if not isinstance(schema, TabularSchema) or job.evaluate.metrics is not None or job.evaluate.every == 0:
        return False
    if job.code is not None or job.study is not None:
        return False
    if (privacy := job.privacy) is not None:
        return privacy.mechanism == "dp_sgd" and privacy.metrics is not None and not privacy.metrics.bounds
    return job.secure_aggregation is None or isinstance(job.prepare, Prepare)


def _classes(job: Job, schema: DataSchema | None) -> int | None:
    """Of how many classes is counted; 0 for regression, None where nobody says."""
    classes = job.evaluate.classes
    if classes is None:
        task = getattr(schema, "task", None)
        classes = 0 if task == "regression" else getattr(schema, "classes", None)
        outputs = job.model.get("outputs")
        if classes is None and isinstance(outputs, int) and task is not None:
            classes = max(2, outputs)
    return classes


def _with_preparation(job: Job, schema: DataSchema | None) -> Job:
    if not isinstance(schema, TabularSchema):
        if isinstance(job.prepare, Prepare) and schema is not None:
            raise invalid("prepare", schema.kind, "a section for this project's data", hint="only tables are prepared")
        return job
    if job.reads_data_itself:  # which reads the table itself, and what is no number in it is its own matter
        return job
    given = job.prepare
    if given is None and not (job.code or job.study or job.privacy or job.initial_model):
        given = Prepare()
    if isinstance(given, Prepare):
        made = completed(given, schema)
        counted = schema.classes if is_balanced(job.train) and job.code is None and given.fitted is None else None
        return job.model_copy(update={"prepare": made.model_copy(update={"classes": counted})})
    if raw := [column for column in schema.features if column.kind != "number"]:
        raise invalid(
            "prepare", given, f"a section: column {raw[0].name} is a {raw[0].kind}, which no model sees as it is",
            hint="for example prepare: {}",
        )  # fmt: skip
    return job


def check_columns(rules: tuple[Rule, ...], schema: DataSchema) -> None:
    """Check that a site is asked for sums of what its project has declared, and of nothing else.

    Raises:
        HanseError: SCHEMA_MISMATCH.
    """
    columns = schema.features if isinstance(schema, TabularSchema) else ()
    declared_ = [(column.name, column.kind, column.values, column.formats) for column in columns]
    asked = [
        (rule.name, rule.kind, getattr(rule, "values", ()), getattr(rule, "formats", ())) for rule in rules
    ]  # fmt: skip
    if asked != declared_:
        raise HanseError(
            ErrorCode.SCHEMA_MISMATCH, "prepare: the columns that are asked for are not those of the project's schema",
            hint="the hub changed one of them: enrol the site again, or submit the job again",
        )  # fmt: skip


def check_classes(classes: int, schema: DataSchema) -> None:
    """Check that a site is asked for rows by the classes that its project has declared, or by none.

    Raises:
        HanseError: SCHEMA_MISMATCH.
    """
    if classes and (not isinstance(schema, TabularSchema) or schema.classes != classes):
        raise HanseError(
            ErrorCode.SCHEMA_MISMATCH, f"prepare: {classes} classes are counted, the project's schema has others",
            hint="the hub changed one of them: enrol the site again, or submit the job again",
        )  # fmt: skip


def features_schema(job: Job, schema: DataSchema | None) -> DataSchema | None:
    """The schema of what the job's model sees, as far as it is known before the run."""
    if not isinstance(schema, TabularSchema) or not isinstance(job.prepare, Prepare):
        return schema
    if job.prepare.fitted is not None:
        return prepared_schema(schema, job.prepare.fitted)
    shape = job.model.get("inputs")
    width = len(schema.features)
    # How many features there will be may follow from the data alone, so the job is believed.
    if isinstance(shape, list | tuple) and len(shape) == 1 and isinstance(shape[0], int) and 0 < shape[0] < 1 << 16:
        width = shape[0]
    return schema.model_copy(update={"features": tuple(Column(name=f"feature {at}") for at in range(width))})


def _of_column(column: Column, prepare: Prepare, own: Mapping[str, Any]) -> Rule:
    said: dict[str, Any] = {"name": column.name, "kind": column.kind}
    if own.get("kind", column.kind) != column.kind:
        raise invalid(f"prepare.columns: {column.name}.kind", own["kind"], f"{column.kind}, as the schema says")
    match column.kind:
        case "category":
            said = {**prepare.categories, **said, "values": column.values}
        case "boolean":
            said = {"scale": "none", **said}
        case "number":
            said = {**prepare.numbers, **said, "minimum": column.minimum, "maximum": column.maximum}
        case "date":
            said = {**prepare.numbers, **said, "formats": column.formats}
        case "text":
            pass
        case unknown:
            assert_never(unknown)
    rule = _rule({**said, **{name: value for name, value in own.items() if name not in _SAID}})
    if isinstance(rule, CategoryRule) and rule.form != "hashed" and not rule.values:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"prepare.columns: {rule.name} is a category, and the project's schema does not declare its values",
            hint=f"in the job, prepare: {{columns: [{{name: {rule.name}, form: hashed}}]}} needs none; in the schema "
            "of a new project, values: [...] (hanse site values shows a site's), or kind: text, which leaves it out",
        )  # fmt: skip
    return rule


def _rule(column: Mapping[str, Any]) -> Rule:
    try:
        return _RULE.validate_python(dict(column))
    except ValidationError as error:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"prepare.columns: {column.get('name')}: {explain(error, Rule)}",
            hint="see docs/owner.md",
        ) from None


def _check_known(where: str, given: Mapping[str, Any], known: frozenset[str]) -> None:
    if strangers := sorted(given.keys() - known):
        there_are = f"there are {', '.join(sorted(known))}{meant(strangers[0], known)}"
        raise ValueError(f"{where}: {strangers[0]} is no setting; {there_are}")
