"""What a reduction takes beside the updates: another strategy than the job's, extras, numbers. Pure.

An extra is an array that travels beside the model, such as SCAFFOLD's control variate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hanse_fabric.messages import ObjectRef, ReduceJob, UpdateInput

Strategy = Callable[[int], dict[str, Any]]
"""The strategy of a reduction of so many updates."""


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra that is a mean over all participants, of whom those who answer tell how theirs has changed.

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
        "updates": tuple(rows), "model": former, "state": {},
        "from_zero": former is None or None, "strategy": {"optimizer": optimizer}, "strategy_digest": None,
    })  # fmt: skip


def former_name(name: str, participants: Iterable[str]) -> str:
    """What the former mean is called among the updates of those; not as one of them."""
    taken, called = set(participants), f"former-{name}"
    while called in taken:
        called += "x"
    return called
