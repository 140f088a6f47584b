"""The job file: everything that a run is, as its owner writes it. Checked the same way by the SDK and the hub."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.base import Frozen
from hanse_fabric.messages.explained import explain
from hanse_fabric.messages.privacy import MOST_ROUNDS, Privacy
from hanse_fabric.names import Digest
from hanse_fabric.text_files import read_yaml
from hanse_schemas import metrics
from hanse_schemas.prepare import Prepare
from hanse_schemas.resources import FIELD, Resources
from hanse_schemas.schema import TargetBounds
from hanse_schemas.secure_aggregation import SecureAggregation
from hanse_schemas.study import Study
from hanse_schemas.subgroups import Subgroups

STUDY = "association_study"
"""The workflow of genome-wide association studies."""

_WHAT = "job file"

Tag = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,49}$")]
"""A word that runs are found by."""

LEAST_COHORTS = 3
"""Of which a sum is made, unless a study's owner wants otherwise: of two, each knows the other's."""

_OF_TRAINING = (
    "rounds", "model", "train", "code", "strategy", "weighting", "evaluate", "stop", "checkpoint_every",
    "initial_model", "utility_preserving", "codec", "keep", "prepare",
)  # fmt: skip
"""What a study has nothing to do with."""


class Participation(Frozen):
    """Who takes part in a round.

    Attributes:
        minimum: a run waits for so many enrolled participants before its first round, and fails at `patience` without.
        fraction: share of the enrolled participants that a round samples, by the run's seed.
        quorum: share of the sampled that must answer before the deadline; at least `minimum` always.
        grace: seconds to wait on after the quorum has answered; None: until the deadline.
        deadline: seconds from a step's opening to its end.
        patience: seconds to wait for the minimum of participants.
        retries: how often a step that missed its quorum is opened again before the run fails.
        bytes_each: of models and updates on one site's line in the run; a site for which they are spent sits out.
    """

    minimum: int = Field(default=2, ge=1)
    fraction: float = Field(default=1.0, gt=0, le=1)
    quorum: float = Field(default=1.0, gt=0, le=1)
    grace: float | None = Field(default=None, ge=0)
    deadline: float = Field(default=300.0, gt=0, le=30 * 86_400)
    patience: float = Field(default=300.0, gt=0, le=30 * 86_400)
    retries: int = Field(default=2, ge=0, le=100)
    bytes_each: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _can_end(self) -> Participation:
        if self.grace is not None and self.grace > self.deadline:
            raise ValueError(f"grace of {self.grace:g} s is longer than the deadline of {self.deadline:g} s")
        return self

    def sampled(self, enrolled: int) -> int:
        """How many of `enrolled` participants a round asks: their share, rounded up, and the minimum at least."""
        return min(enrolled, max(self.minimum, math.ceil(self.fraction * enrolled - 1e-9)))

    def needed(self, sampled: int) -> int:
        """How many of `sampled` participants must answer."""
        return max(self.minimum, math.ceil(self.quorum * sampled - 1e-9))


class Evaluation(Frozen):
    """Evaluation at the sites.

    Attributes:
        every: after so many rounds, and the last; 0 for never. With `privacy.metrics`, by which each is charged, and
            without a section `stop` the default is the last alone.
        metrics: beside those that every run has (`hanse_schemas.metrics.METRICS`): of all sites' examples together,
            from what the sites count. None: not said; a job of a table is given some when it is submitted.
        optional: whether sites whose policies do not let this be counted take part all the same, and count nothing; so
            it is of what a job was given.
        subgroups: the metrics also by groups of a column; they are named then.
        bins: of the histograms of scores that AUROC and average precision are made of, or cells of `concordance`;
            None: as many as fit. With 2, 4, 8, 16 or 32 sites are asked nothing fine, and the values are coarse.
        classes: which the counts are of; 0 for regression. A job need not say it where the project's schema does.
        bounds: by which values are counted for `concordance`: the schema's `target_bounds`, which the hub writes into a
            submitted job, and no others.
    """

    every: int = Field(default=1, ge=0)
    metrics: tuple[str, ...] | None = Field(
        default=None, max_length=32, exclude_if=lambda given: given is None
    )  # since 0.2.0
    optional: bool = Field(default=False, exclude_if=lambda given: not given)  # since 0.2.0
    subgroups: Subgroups | None = Field(default=None, exclude_if=lambda given: given is None)  # since 0.2.0
    bins: int | None = Field(default=None, ge=2, exclude_if=lambda given: given is None)  # since 0.2.0
    classes: int | None = Field(default=None, ge=0, exclude_if=lambda given: given is None)  # since 0.2.0
    bounds: TargetBounds = ()  # since 0.2.0

    @model_validator(mode="after")
    def _is_known(self) -> Evaluation:
        every = {**metrics.METRICS, **metrics.COUNTED}
        if unknown := [name for name in self.named if name not in every]:
            elsewhere = metrics.ELSEWHERE.get(unknown[0].lower())
            told = f"; {elsewhere}" if elsewhere else ""
            raise ValueError(f"metrics: {unknown[0]!r} is none of Hanse's own: {', '.join(every)}{told}")
        if self.metrics and self.every == 0:
            raise ValueError("metrics: they are never taken, for every is 0: 1 or more is needed")
        if self.subgroups is not None and not metrics.families(self.named):
            raise ValueError(f"subgroups: metrics of counts are to be named, such as {', '.join(metrics.COUNTED)}")
        if self.subgroups is not None and self.optional:
            raise ValueError("subgroups: they are insisted on, with optional: true some sites would be in none of them")
        if self.classes == 1:
            raise ValueError("classes: 1 is given, 2 or more are needed, or 0 for regression")
        return self

    @property
    def named(self) -> tuple[str, ...]:
        """The metrics, of a job that was submitted."""
        return self.metrics or ()


class EarlyStop(Frozen):
    """Stop when `metric` (example-weighted mean over sites) has not improved by `min_delta` for `patience`
    evaluations, or has reached `target`.

    Attributes:
        metric: by which is judged.
        patience: evaluations in a row without improvement, after which the run ends; None: it never ends by that.
        min_delta: what counts as an improvement, at least.
        target: the run ends when it is reached; None: none.
        mode: whether more or less of the metric is better; a job need not say it of a metric that Hanse knows.
    """

    metric: str = "accuracy"
    mode: Literal["max", "min"] = "max"
    patience: int | None = Field(default=None, ge=1)
    min_delta: float = Field(default=0.0, ge=0)
    target: float | None = None

    @model_validator(mode="before")
    @classmethod
    def _mode_of_the_metric(cls, body: Any) -> Any:
        if not isinstance(body, dict) or body.get("mode") is not None:
            return body
        name = body.get("metric", "accuracy")
        if not isinstance(name, str):
            return body
        if (metric := metrics.known(name)) is None:
            raise ValueError(
                f"mode: none is given, max or min is needed for {name!r}, which is none of Hanse's own metrics "
                f"({', '.join({**metrics.METRICS, **metrics.COUNTED})})"
            )
        return {**body, "mode": metric.better}

    @property
    def ends_runs(self) -> bool:
        """Whether a run may end by it; else it says only which model is the best."""
        return self.patience is not None or self.target is not None


def no_former_values(stale: object) -> str:
    """Why a job cannot have a site's former value stand for one that is left out (Henkel, 2021: `stale: last`)."""
    return (
        f"stale: {stale!r} is not offered: a parameter that is left out does not move. For a site's former value the "
        "hub would keep its newest update as long as the run lasts, and values of other rounds would be in all sums; "
        "error_feedback: true of codec sends what is missing, once"
    )


class Codec(Frozen):
    """In how few bytes models and updates travel; docs/codecs.md.

    Attributes:
        up: the codecs that a site's update goes through, in order: sections with a name; none: it travels as it is.
        down: the same of the model that a site is sent. The hub's own stays as it is.
        error_feedback: whether a site adds to its next update what the codecs left out of the former ones.
    """

    up: tuple[dict[str, Any], ...] = Field(default=(), max_length=8)
    down: tuple[dict[str, Any], ...] = Field(default=(), max_length=8)
    error_feedback: bool = False

    @model_validator(mode="before")
    @classmethod
    def _no_former_values(cls, body: Any) -> Any:
        if isinstance(body, dict) and "stale" in body:
            raise ValueError(no_former_values(body["stale"]))
        return body

    @model_validator(mode="after")
    def _does_something(self) -> Codec:
        if not self.up and not self.down:
            raise ValueError("give up, down, or both")
        return self


class SiteCode(Frozen):
    """Code that the sites' administrators mounted and approved by digest: a file with `train` and `test`, or what was
    written for another framework; or loops of the sites' own (`{kind: own}`), which no datapod starts.

    Attributes:
        name: of the file, without `.py`; of a Flower app of several files, its folder's. Loops have none, other code
            must have one.
        digest: of the file or folder, as the administrators approved it. Loops have none, other code must have one.
        kind: `flower`: a Flower `ClientApp` or `NumPyClient`; `nvflare`: a script of NVIDIA FLARE's Client API. Both
            run unchanged, in an interpreter that each site names. `own`: sites join by `hanse.join`, and their own
            loops train and evaluate; others refuse the tasks.
    """

    name: str | None = Field(
        default=None, pattern=r"^[A-Za-z0-9_-]{1,64}$", exclude_if=lambda given: given is None
    )  # since 0.2.0 it may be absent
    digest: Digest | None = Field(default=None, exclude_if=lambda given: given is None)  # since 0.2.0 it may be absent
    kind: Literal["hanse", "flower", "nvflare", "own"] = Field(
        default="hanse", exclude_if=lambda given: given == "hanse"
    )  # since 0.2.0

    @model_validator(mode="after")
    def _named(self) -> SiteCode:
        """Raise ValueError where what names the code does not belong to its kind, or is missing."""
        for field, given in (("name", self.name), ("digest", self.digest)):
            if self.kind == "own" and given is not None:
                raise ValueError(f"{field}: {given!r} is given, but loops of kind own have none")
            if self.kind != "own" and given is None:
                raise ValueError(f"{field}: none is given, the code's is needed (or kind: own, for hanse.join)")
        return self

    @property
    def title(self) -> str:
        """What people call it."""
        return self.name or "of the sites' own pipelines"


class Job(Frozen):
    """A run's description.

    Attributes:
        participants: who takes part in a round, and for how long is waited.
        evaluate: evaluation at the sites.
        stop: when a run ends before its last round, and which model is the best; None: at the last.
        code: the sites' own code, instead of built-in training; None: none.
        workflow: `federated_averaging` trains a model, `association_study` does the section `study`; which others are
            installed, the hub knows, and refuses the rest when the job is submitted.
        rounds: of training, whose jobs must say it; a study has none.
        model: `{name: ..., ...}`, a built-in architecture; or whatever site code understands.
        train: local training: loss, optimizer, epochs or steps, batch size.
        strategy: `{reduction: {name: ...}, optimizer: {name: ...}}`; the default is federated averaging.
        weighting: a participant's weight in the mean: its number of examples, or 1.
        checkpoint_every: publish a version every so many rounds (the last always); 0: only the last.
        initial_model: an owner's uploaded tensor file to start from, by digest; None: initialized from the seed.
        seed: of everything random in the run that is not secret.
        secure_aggregation: sums of which nobody sees the summands; None: aggregators see the updates.
        privacy: differential privacy; None: none.
        utility_preserving: refuse the job unless it equals training on pooled data (`hanse run check` says why not).
        codec: in how few bytes models and updates travel; None: as they are.
        keep: `best`: the model of the best evaluation by `stop.metric` is published and stays, whichever round is the
            last; `last`: which versions stay is the registry's to say.
        name, tags: what its owner calls the run, and finds it by; nothing depends on them.
        prepare: how raw columns become what the model sees; `none`: they are numbers that it sees as they are. A job
            that says nothing is given a default when it is submitted; stored ones of before that mean `none`.
        study: of an association study; its `secure_aggregation` is mode compensator where the job says nothing.
    """

    workflow: str = Field(default="federated_averaging", pattern=r"^[a-z][a-z0-9_]{0,63}$")
    rounds: int = Field(default=1, ge=1, le=MOST_ROUNDS)
    participants: Participation = Participation()
    model: dict[str, Any] = {}
    train: dict[str, Any] = {}
    code: SiteCode | None = None
    strategy: dict[str, Any] = {}
    weighting: Literal["examples", "uniform"] = "examples"
    evaluate: Evaluation = Evaluation()
    stop: EarlyStop | None = None
    checkpoint_every: int = Field(default=1, ge=0)
    initial_model: Digest | None = None
    seed: int = Field(default=0, ge=0, lt=2**63)
    secure_aggregation: SecureAggregation | None = None
    privacy: Privacy | None = None
    utility_preserving: bool = False
    codec: Codec | None = None
    keep: Literal["last", "best"] = Field(default="last", exclude_if=lambda given: given == "last")  # since 0.2.0
    prepare: Prepare | Literal["none"] | None = Field(
        default=None, exclude_if=lambda given: given is None
    )  # since 0.2.0
    study: Study | None = None
    name: str = Field(default="", max_length=100, exclude_if=lambda given: not given)  # since 0.2.0
    tags: tuple[Tag, ...] = Field(default=(), max_length=20, exclude_if=lambda given: not given)  # since 0.2.0

    @model_validator(mode="before")
    @classmethod
    def _of_a_study(cls, body: Any) -> Any:
        """A study's sums are masked, and of three cohorts at least, where its job does not say how."""
        if not isinstance(body, dict):
            return body
        if body.get("workflow") != STUDY:
            return body
        body = {"secure_aggregation": {"mode": "compensator"}, "participants": {}, **body}
        participants = body["participants"]
        if isinstance(participants, dict) and "minimum" not in participants:
            body["participants"] = {**participants, "minimum": LEAST_COHORTS}
        return body

    @model_validator(mode="before")
    @classmethod
    def _charged_evaluations(cls, body: Any) -> Any:
        """Where evaluations are charged, there is one after the last round, unless the job says how many or stops by
        them."""
        if not isinstance(body, dict) or body.get("stop") is not None:
            return body
        privacy, evaluate, rounds = body.get("privacy"), body.get("evaluate", {}), body.get("rounds")
        asked = privacy.get("metrics") if isinstance(privacy, dict) else getattr(privacy, "metrics", None)
        if asked is None or not isinstance(evaluate, dict) or "every" in evaluate or not isinstance(rounds, int):
            return body
        return {**body, "evaluate": {**evaluate, "every": rounds}}

    @property
    def has_foreign_code(self) -> bool:
        """Whether its code was written for another framework."""
        return self.code is not None and self.code.kind in ("flower", "nvflare")

    @property
    def reads_data_itself(self) -> bool:
        """Whether its code reads a site's data as they are, not as Hanse has read and prepared them."""
        return self.code is not None and self.code.kind != "hanse"

    @model_validator(mode="after")
    def _says_rounds(self) -> Job:
        """After the keys were looked at, for `roundz` is one that is unknown."""
        if self.workflow != STUDY and "rounds" not in self.model_fields_set:
            raise ValueError("rounds: none are given, 1 or more rounds of training are needed")
        return self

    @model_validator(mode="after")
    def _is_one_of_two(self) -> Job:
        if self.workflow != STUDY:
            if self.study is not None:
                raise ValueError(f"study: it belongs to workflow {STUDY}, workflow is {self.workflow}")
            return self
        if self.study is None:
            raise ValueError(f"study: none is given, workflow {STUDY} needs the section that says what is tested")
        for name in _OF_TRAINING:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name}: {getattr(self, name)!r} belongs to training, workflow is {STUDY}")
        for name in ("fraction", "quorum", "grace"):
            value = getattr(self.participants, name)
            if value != Participation.model_fields[name].default:
                raise ValueError(f"participants.{name}: {value!r} is given, but all cohorts of a study take part in it")
        return self

    @model_validator(mode="after")
    def _can_meet(self) -> Job:
        if self.study is not None:
            return self
        if self.keep == "best" and self.stop is None:
            raise ValueError(
                "keep: best is given without a section stop, whose metric says which model is the best; "
                "for example stop: {metric: loss}"
            )
        if self.stop is not None and not self.stop.ends_runs and self.keep != "best":
            raise ValueError("stop: give patience, target, or both; or keep: best, to have the best model marked")
        if self.stop is not None and self.evaluate.every == 0:
            raise ValueError(
                f"stop.metric {self.stop.metric!r} is never measured: evaluate.every is 0, 1 or more is needed"
            )
        if self.stop is not None and self.evaluate.every > self.rounds:
            raise ValueError(
                f"stop is never decided before the last round: evaluate.every is {self.evaluate.every}, "
                f"rounds is {self.rounds}"
            )
        if self.code is None and not self.model:
            raise ValueError("model: a mapping with a name is needed, unless site code makes the model")
        if self.train.get(FIELD) is not None:
            try:  # of site code, too, whose section `train` is its own otherwise
                Resources.model_validate(self.train[FIELD])
            except ValidationError as error:
                raise ValueError(f"train.{FIELD}: {explain(error, Resources)}") from None
        return self


def read_job_file(path: Path) -> Job:
    """Read a job file (YAML or JSON).

    Raises:
        HanseError: NOT_FOUND; INVALID_INPUT naming the file, each field, its value and what was expected.
    """
    return check_job(read_yaml(path, _WHAT), source=f"{_WHAT} {path}")


def check_job(body: object, *, source: str = _WHAT) -> Job:
    """Validate a job that was read already (from YAML or an HTTP body); `source` is where from, for errors."""
    if not isinstance(body, dict):
        raise HanseError(ErrorCode.INVALID_INPUT, f"{source}: a mapping was expected, {type(body).__name__} given")
    try:
        return Job.model_validate(body)
    except ValidationError as error:
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"{source}: {explain(error, Job)}", hint="see docs/owner.md"
        ) from None
