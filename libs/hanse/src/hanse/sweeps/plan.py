"""Which jobs a sweep runs: of a job and the values of some settings, all combinations or some that are drawn. Pure."""

from __future__ import annotations

import copy
import hashlib
import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hanse.jobs import read_job
from hanse_fabric.canonical import canonical
from hanse_fabric.errors import invalid

MOST = 1000
"""Runs of a sweep."""
_NAME = 100
_ABOUT = ("name", "tags")
_TRIES = 50
"""Draws for each run that is wanted, before there are said to be no more combinations."""


@dataclass(frozen=True, slots=True)
class Span:
    """Values from `low` to `high`, of which a sweep draws.

    Attributes:
        log: whether each order of magnitude is as likely, or each value.
    """

    low: float
    high: float
    log: bool = False

    def draw(self, source: random.Random) -> float:
        """A value; a whole one where both ends are, and each value is as likely."""
        if self.log:
            return float(f"{math.exp(source.uniform(math.log(self.low), math.log(self.high))):.6g}")
        if isinstance(self.low, int) and isinstance(self.high, int):
            return source.randint(self.low, self.high)
        return float(f"{source.uniform(self.low, self.high):.6g}")


Values = Sequence[Any] | Span


@dataclass(frozen=True, slots=True)
class Trial:
    """A run of a sweep.

    Attributes:
        settings: what it has differently, by dotted name.
        job: as it is submitted, with a name and with the tags `sweep` and `trial`.
        sweep: the tag of all runs whose jobs are the same but for settings that are swept.
        trial: the tag of this job, whoever submits it and whenever.
    """

    settings: Mapping[str, Any]
    job: Mapping[str, Any]
    sweep: str
    trial: str

    @property
    def said(self) -> str:
        """For people: `train.optimizer.lr=0.1, train.epochs=2`."""
        return ", ".join(f"{name}={value}" for name, value in self.settings.items())


def plan_trials(
    job: Mapping[str, Any], over: Mapping[str, Values], *, draws: int | None = None, seed: int = 0
) -> tuple[Trial, ...]:
    """The runs, in order.

    Args:
        job: as a job file has it.
        over: values by dotted name, such as `train.optimizer.lr`; lists, or, where runs are drawn, spans.
        draws: how many combinations to draw; None: all of them.
        seed: of the draws.

    Raises:
        HanseError: INVALID_INPUT naming the setting, for a job that is none, or for fewer than two runs.
    """
    if not over:
        raise invalid("over", "nothing", "one setting at least, such as train.optimizer.lr")
    for name, values in over.items():
        _check(name, values, drawn=draws is not None)
    if draws is not None and not 2 <= draws <= MOST:
        raise invalid("draws", draws, f"2 to {MOST}")
    chosen = _all(over) if draws is None else _drawn(over, draws, seed)
    if not 2 <= len(chosen) <= MOST:
        raise invalid("over", f"{len(chosen)} runs", f"2 to {MOST}")
    base = {name: value for name, value in job.items() if name not in _ABOUT}
    sweep = f"sweep:{_digest([base, sorted(over)])}"
    return tuple(_trial(job, base, settings, sweep) for settings in chosen)


def _trial(job: Mapping[str, Any], base: Mapping[str, Any], settings: dict[str, Any], sweep: str) -> Trial:
    body = copy.deepcopy(dict(base))
    for name, value in settings.items():
        _put(body, name, value)
    body = read_job(body)
    trial = f"trial:{_digest(body)}"
    said = ", ".join(f"{name.rpartition('.')[2]}={value}" for name, value in settings.items())
    called = f"{job['name']}: {said}" if job.get("name") else said
    tags = [*(job.get("tags") or ()), sweep, trial]
    return Trial(settings, read_job({**body, "name": called[:_NAME], "tags": tags}), sweep, trial)


def _check(name: str, values: Values, *, drawn: bool) -> None:
    if not all(name.split(".")) or name.split(".")[0] in _ABOUT:
        raise invalid("over", name, "a setting of a job by its dotted name, such as train.optimizer.lr")
    if not isinstance(values, Span):
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise invalid(f"over.{name}", values, "a list of values")
        if len({_digest(value) for value in values}) < len(values):
            raise invalid(f"over.{name}", list(values), "each value once")
        return
    if not drawn:
        raise invalid(f"over.{name}", f"{values.low}..{values.high}", "a list of values, where runs are not drawn")
    if not values.low < values.high or not math.isfinite(values.high - values.low) or (values.log and values.low <= 0):
        ends = "0 < low < high" if values.log else "low < high"
        raise invalid(f"over.{name}", f"{values.low}..{values.high}", ends)


def _all(over: Mapping[str, Values]) -> list[dict[str, Any]]:
    lists = [list(values) for values in over.values() if not isinstance(values, Span)]
    if math.prod(map(len, lists)) > MOST:
        raise invalid("over", f"{math.prod(map(len, lists))} runs", f"{MOST} at most; or some that are drawn")
    return [dict(zip(over, each, strict=True)) for each in itertools.product(*lists)]


def _drawn(over: Mapping[str, Values], draws: int, seed: int) -> list[dict[str, Any]]:
    source = random.Random(seed)  # noqa: S311 - settings are no secrets
    found: dict[str, dict[str, Any]] = {}
    for _ in range(draws * _TRIES):
        each = {
            name: values.draw(source) if isinstance(values, Span) else source.choice(values)
            for name, values in over.items()
        }
        found.setdefault(_digest(each), each)
        if len(found) == draws:
            return list(found.values())
    raise invalid("draws", draws, f"no more than there are combinations: {len(found)} were found")


def _put(body: dict[str, Any], name: str, value: Any) -> None:
    *above, last = name.split(".")
    for part in above:
        body = body.setdefault(part, {})
        if not isinstance(body, dict):
            raise invalid(f"over.{name}", part, "a section of the job, which this is not")
    body[last] = copy.deepcopy(value)


def _digest(value: Any) -> str:
    return hashlib.sha256(canonical(value)).hexdigest()[:16]
