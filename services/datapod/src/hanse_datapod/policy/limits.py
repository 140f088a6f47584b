"""The policy's rules about how finely, and how often, this site may be asked. Sums of questions that hardly differ tell
about single people, and no mask helps against that.

Where the policy requires masking, rules that it does not name have cautious defaults.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pydantic import Field

from hanse_datapod.policy.refusal import forbidden
from hanse_fabric.messages import Frozen
from hanse_schemas.prepare import NumberRule, Rule
from hanse_schemas.protocols import PROTOCOLS, ProtocolName, protocol
from hanse_schemas.schema import DataSchema, GenotypesSchema, TabularSchema
from hanse_schemas.study import Study

if TYPE_CHECKING:
    from hanse_datapod.worker.port import DataState

DAY_S = 86_400.0
RUNS, EVALUATIONS, FEW = 100, 1000, 10
"""Defaults of a policy that requires masking."""


class AskingPolicy(Frozen):
    """What the site may be asked.

    Attributes:
        runs: so many a day; None: 100 where masking is required, else any number.
        questions: before a run, what the site says of its job, which are not counted among `runs`: so many a day; None:
            as many as runs.
        evaluations: of models on the site's test examples, and rounds of masked training that tell a metric of the
            model that was sent, each of which is a question, whichever run asks: so many a day; None: 1000 where
            masking is required, else any number.
        columns: of tables: what the project's schema names must be among these; None: anything.
        phenotypes, covariates: of studies; None: where masking is required those of the project's schema, else any.
            The .fam file's own phenotype is `FAM`.
        group: a study of fewer cases or controls at this site is refused, and so are moments of a column of which it
            has fewer cells (but some), and counts of a group of fewer test examples; None: 10 where masking is
            required, else 1.
        differ: a study is refused whose people differ from an earlier study's by fewer than so many, and are not the
            same; None: 10 where masking is required, else 0.
        protocols: which of the protocols of many fine questions are open; None: where masking or privacy is required,
            or no update may leave, the coarse ones, else all (`hanse_schemas.protocols`).
    """

    runs: int | None = Field(default=None, ge=1)
    questions: int | None = Field(default=None, ge=1)
    evaluations: int | None = Field(default=None, ge=1)
    columns: tuple[str, ...] | None = None
    phenotypes: tuple[str, ...] | None = None
    covariates: tuple[str, ...] | None = None
    group: int | None = Field(default=None, ge=1)
    differ: int | None = Field(default=None, ge=0, le=100)
    protocols: tuple[ProtocolName, ...] | None = None

    def open(self, *, cautious: bool) -> tuple[str, ...]:
        """Names of the protocols that are open."""
        if self.protocols is not None:
            return self.protocols
        return tuple(name for name, one in PROTOCOLS.items() if one.coarse or not cautious)

    def check_protocols(self, asked: Mapping[str, int], *, cautious: bool) -> None:
        """Whether these protocols are open, and ask no more than they may.

        Args:
            asked: the most numbers that each is to tell of one column, by its name.

        Raises:
            HanseError: POLICY naming the protocol, with what the job may ask instead; INVALID_INPUT for a name that is
                none.
        """
        allowed = self.open(cautious=cautious)
        for name, numbers in asked.items():
            one = protocol(name)
            if name not in allowed:
                raise forbidden("asking.protocols", f"{name} ({one.tells})", allowed or "none", hint=one.instead)
            if numbers > one.most:
                raise forbidden(
                    "asking.protocols", f"{name} of {numbers} numbers", f"at most {one.most}",
                    hint=f"no policy allows more; {one.instead}",
                )  # fmt: skip

    def check_ends(self, rules: Iterable[Rule], schema: DataSchema) -> None:
        """Whether sums with noise that is not trusted are told of cells cut to these ends: only to the schema's, for
        between ends that a hub chooses there may be one person alone.

        Raises:
            HanseError: POLICY naming the column.
        """
        if "quantiles" in (self.protocols or ()):
            return
        columns = schema.features if isinstance(schema, TabularSchema) else ()
        declared = {column.name: (column.minimum, column.maximum) for column in columns}
        for rule in rules:
            if not isinstance(rule, NumberRule) or rule.kind == "boolean" or not (rule.measured or rule.quantiles):
                continue
            if rule.ends is not None and rule.ends != declared.get(rule.name):
                # A schema has ends of numbers alone.
                instead = "" if rule.kind == "date" else "the schema of a new project gives it minimum and maximum; "
                raise forbidden(
                    "asking.protocols", f"{rule.name} cut to ends of the job's own, with noise of any size",
                    "ends that the project's schema has",
                    hint=f"{instead}the site's administrator sets privacy.epsilon, which noise is trusted with; or the "
                    "job sums nothing of it: scale: none and missing: constant",
                )  # fmt: skip

    def most_runs(self, *, cautious: bool) -> int | None:
        """So many runs a day; None: any number."""
        return self.runs if self.runs is not None or not cautious else RUNS

    def most_questions(self, *, cautious: bool) -> int | None:
        """So many questions before a run a day; None: any number."""
        return self.questions if self.questions is not None else self.most_runs(cautious=cautious)

    def most_evaluations(self, *, cautious: bool) -> int | None:
        """So many evaluations a day; None: any number."""
        return self.evaluations if self.evaluations is not None or not cautious else EVALUATIONS

    def check_evaluations(self, asked: int, *, cautious: bool) -> None:
        """Whether a run may have so many evaluations, if it asks for all of them within a day.

        Raises:
            HanseError: POLICY.
        """
        most = self.most_evaluations(cautious=cautious)
        if most is not None and asked > most:
            raise forbidden(
                "asking.evaluations", f"{asked} evaluations", f"{most} a day",
                hint="evaluate: {every: N} evaluates the model after every Nth round; secure_aggregation: "
                "{metrics: []} tells none of training, nor of evaluations; or the site's administrator allows more",
            )  # fmt: skip

    def few(self, *, cautious: bool) -> int:
        """By how few people two studies must not differ."""
        return self.differ if self.differ is not None else FEW if cautious else 0

    def check_schema(self, schema: DataSchema) -> None:
        """Whether tables of this schema may be asked of.

        Raises:
            HanseError: POLICY.
        """
        if self.columns is None or not isinstance(schema, TabularSchema):
            return
        weight = () if schema.weight is None else (schema.weight,)  # which training depends on; a unit only groups
        strangers = {*(column.name for column in schema.features), schema.target, *weight} - set(self.columns)
        if strangers:
            raise forbidden("asking.columns", ", ".join(sorted(strangers)), self.columns or "none")

    def check_study(self, study: Study, schema: DataSchema, *, cautious: bool) -> None:
        """Whether a study of these columns may be made.

        Raises:
            HanseError: POLICY.
        """
        phenotypes, covariates = self.phenotypes, self.covariates
        if cautious:
            # A schema that is open declares nothing: then the policy names what may be asked of.
            declared = schema if isinstance(schema, GenotypesSchema) else GenotypesSchema()
            phenotypes = (*declared.phenotypes, "FAM") if phenotypes is None else phenotypes
            covariates = declared.covariates if covariates is None else covariates
        phenotype = study.phenotype or "FAM"
        if phenotypes is not None and phenotype not in phenotypes:
            raise forbidden("asking.phenotypes", phenotype, phenotypes or "none")
        strangers = set(study.covariates) - set(study.covariates if covariates is None else covariates)
        if strangers:
            raise forbidden("asking.covariates", ", ".join(sorted(strangers)), covariates or "none")

    def check_smallest(self, smallest: int, *, cautious: bool) -> None:
        """Whether groups of so few people may be told of, over all sites.

        Raises:
            HanseError: POLICY.
        """
        least = self.group if self.group is not None else FEW if cautious else 1
        if smallest < least:
            raise forbidden("asking.group", f"subgroups of {smallest}", f"evaluate.subgroups.smallest of {least}")

    def check_group(self, data: DataState, asked: str, *, cautious: bool) -> None:
        """Whether what is told of is enough people at this site. How many they are is not said.

        Args:
            asked: what is refused, in words.

        Raises:
            HanseError: POLICY.
        """
        least = self.group if self.group is not None else FEW if cautious else 1
        if data.group is not None and data.group < least:
            raise forbidden("asking.group", asked, f"at least {least}")
