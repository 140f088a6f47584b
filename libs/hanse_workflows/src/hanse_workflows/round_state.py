"""What a run carries from round to round beside the model, and what the algorithm and strategy make of it.

All of it follows from journalled outcomes, so that a run that is replayed carries the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hanse_fabric.messages import ObjectRef, ReduceJob, UpdateInput
from hanse_learning.config import check_train
from hanse_learning.server.config import FedDynConfig, check_strategy
from hanse_schemas.job import Job
from hanse_workflows.encoding import Carrier
from hanse_workflows.outcomes import Reduction
from hanse_workflows.per_job import per_job

Strategy = Callable[[int], dict[str, Any]]
"""The strategy of a reduction of so many updates."""


@dataclass(frozen=True, slots=True)
class Extra:
    """An array that travels beside the model, such as SCAFFOLD's control variate: a mean over all participants, of whom
    those who answer tell how theirs has changed.

    So c <- c + |S| / N mean(c_i+ - c_i), as SCAFFOLD has it (algorithm 1, line 17): those who are not in S have not
    changed theirs.

    Attributes:
        former: the mean before this round; None: zeros.
        before, now: N, of `former` and from this round on; it grows where participants join the run later.
    """

    former: ObjectRef | None
    before: int
    now: int


@dataclass(frozen=True, slots=True)
class ReduceOptions:
    """What a reduction takes beside the updates.

    Attributes:
        strategy: in place of the job's.
        extras: what else is reduced of the same answers, by name; equal weights.
        info: numbers of each answer's that the strategy needs.
    """

    strategy: Strategy | None = None
    extras: Mapping[str, Extra] = field(default_factory=dict)
    info: tuple[str, ...] = ()


def extra_job(job: ReduceJob, name: str, extra: Extra, changes: Mapping[str, ObjectRef]) -> ReduceJob:
    """The reduction of an extra, of the same answers as `job`.

    Args:
        changes: of the extra, by participant.
    """
    rows = [UpdateInput(participant=row.participant, weight=1.0, ref=changes[row.participant]) for row in job.updates]
    former, parts = extra.former, len(rows)
    if former is not None and extra.before != extra.now:
        # The mean of fewer is not yet that of all: (before former + sum of changes) / now, from zero.
        rows.append(UpdateInput(participant=former_name(name, changes), weight=float(extra.before), ref=former))
        former, parts = None, parts + extra.before
    optimizer = {"name": "sgd", "lr": parts / extra.now, "momentum": 0.0}
    return job.model_copy(update={
        "updates": tuple(sorted(rows, key=lambda row: row.participant)), "model": former, "state": {},
        "from_zero": former is None or None, "strategy": {"optimizer": optimizer}, "strategy_digest": None,
        "optimizer_digest": None, "codec": None, "codec_digests": None,
    })  # fmt: skip


def former_name(name: str, participants: Iterable[str]) -> str:
    """What the former mean is called among the updates of those; not as one of them."""
    taken, called = set(participants), f"former-{name}"
    while called in taken:
        called += "x"
    return called


@dataclass(frozen=True, slots=True)
class RoundState:
    """What goes on from one round to the next.

    Attributes:
        state: the server optimizer's arrays.
        clip: the next round's clipping norm, where central privacy moves it.
        extras: the algorithm's further arrays (SCAFFOLD's `control`); none before the first round.
        counted: the last round in which each participant's answer is in the model.
        known: all participants that were present at any round so far: SCAFFOLD's and FedDyn's N.
        before: how many these were when `extras` were made.
        seed: of all rounds' noise, in hexadecimal, where it is correlated from round to round.
        reduced: whose updates were reduced, round by round, where it is.
        asked: the last round in which each participant was asked to train.
        members: who shares the noise of all rounds, where it is correlated and shared: fixed by the first round.
        carrier: of the models that sites are sent; the same one for all rounds.
        weighed, weight: whose examples are counted in the masked sums before, and what they do not exceed together.
    """

    state: Mapping[str, ObjectRef] = field(default_factory=dict)
    clip: float | None = None
    extras: Mapping[str, ObjectRef] = field(default_factory=dict)
    counted: Mapping[str, int] = field(default_factory=dict)
    known: frozenset[str] = frozenset()
    before: int = 0
    seed: str | None = None
    reduced: tuple[tuple[str, ...], ...] = ()
    asked: Mapping[str, int] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    carrier: Carrier = field(default_factory=Carrier, compare=False)
    weighed: frozenset[str] = frozenset()
    weight: int = 0

    def among(self, job: Job, present: tuple[str, ...]) -> RoundState:
        """The same, with its members: those who were present at the first round, where the job has any."""
        return replace(self, members=self.members or present) if shares_turns(job) else self

    def asking(self, round_number: int, chosen: Iterable[str]) -> RoundState:
        """The same, once these were asked to train."""
        return replace(self, asked={**self.asked, **dict.fromkeys(chosen, round_number)})

    def resting(self, job: Job, round_number: int) -> frozenset[str]:
        """Who may not train in a round, for noise that is correlated hides those alone who rest between."""
        separation = 1 if job.privacy is None else job.privacy.min_separation or 1
        return frozenset(name for name, last in self.asked.items() if round_number < last + separation)

    def seeing(self, present: Iterable[str]) -> RoundState:
        """The same, with those who are present now."""
        return replace(self, known=self.known | frozenset(present))

    def weight_of(self, asked: Iterable[str]) -> int:
        """What the examples of these do not exceed together; 0: nobody knows."""
        return self.weight if self.weighed.issuperset(asked) else 0

    def weighing(self, summed: Iterable[str], examples: int) -> RoundState:
        """The same, once these were found to have so many examples together; 0: nobody has told."""
        found = frozenset(summed)
        if not examples or found < self.weighed:
            return self
        if found >= self.weighed:
            return replace(self, weighed=found, weight=examples)
        return replace(self, weighed=self.weighed | found, weight=self.weight + examples)

    def after(self, round_number: int, reduction: Reduction) -> RoundState:
        """What the next round begins with."""
        counted = {**self.counted, **dict.fromkeys(reduction.participants, round_number)}
        return replace(
            self, state=reduction.state, clip=reduction.clip, extras=reduction.extras, counted=counted,
            before=len(self.known),
            reduced=() if self.seed is None else (*self.reduced, reduction.participants),
        )  # fmt: skip


def shares_turns(job: Job) -> bool:
    """Whether sites add shares of noise that is correlated over the run: all members then answer in every round."""
    privacy = job.privacy
    return privacy is not None and privacy.mechanism == "dp_ftrl" and privacy.placement == "distributed"


@per_job
def extras_named(job: Job) -> tuple[str, ...]:
    """Names of what travels beside the model and the updates. Pure; the job was checked when it was submitted."""
    return check_train(job.train).algorithm.extras if job.code is None else ()


@per_job
def shared_from(job: Job) -> int:
    """The first round whose model may be published: those before end in one site's own. Pure."""
    return check_train(job.train).algorithm.shared_from() if job.code is None else 1


@per_job
def info_named(job: Job) -> tuple[str, ...]:
    """Names of the numbers that the strategy needs of each update. Pure."""
    return check_strategy(job.strategy).reduction.needs()


def reduce_options(job: Job, state: RoundState, strategy: dict[str, Any] | None) -> ReduceOptions:
    """How a round's answers are reduced. Pure.

    Args:
        strategy: in place of the job's; None: the job's.
    """
    known = len(state.known)
    extras = {name: Extra(state.extras.get(name), state.before, known) for name in extras_named(job)}
    return ReduceOptions(strategy=_strategy(strategy or job.strategy, known), extras=extras, info=info_named(job))


def _strategy(strategy: dict[str, Any], known: int) -> Strategy:
    """FedDyn's server is told which share of all takes part, unless the job says it."""
    config = check_strategy(strategy)
    optimizer = strategy.get("optimizer")
    if not isinstance(config.optimizer, FedDynConfig) or (isinstance(optimizer, Mapping) and "share" in optimizer):
        return lambda _: strategy
    given = config.optimizer.model_dump(mode="json")
    return lambda count: {**strategy, "optimizer": {**given, "share": min(1.0, count / max(known, 1))}}
