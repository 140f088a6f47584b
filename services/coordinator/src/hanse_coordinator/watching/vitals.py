"""What the operator sees of runs while they run: which step is open, for how long, and who it waits for.

Each run notes its open steps here; every two seconds they become gauges. Names of runs and participants are in them
only while they matter: a run's series go when it leaves this coordinator, a participant is named when a step has waited
for it for some seconds, and so many are named at most (their number is always told).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hanse_fabric.clock import Clock
from hanse_fabric.messages import ObjectRef
from hanse_fabric.telemetry import catalogue, span
from hanse_fabric.telemetry.catalogue import STEP_BYTES
from hanse_fabric.telemetry.metrics import Labels
from hanse_workflows.outcomes import Answer

TOLD_EVERY_S = 2.0
NAMED_AFTER_S = 5.0
"""Seconds that a step waits before those who have not answered are named."""

MOST_NAMED = 10
"""Participants that are named of one run."""

MOST_RUNS = 100
"""Runs that have series of their own; the longest open ones."""

Missing = Callable[[], Iterable[str]]


@dataclass(frozen=True, slots=True)
class _Open:
    phase: str
    since: float  # monotonic
    missing: Missing


def _nobody() -> Iterable[str]:
    return ()


class RunVitals:
    """The open steps of one run in this coordinator's hands."""

    def __init__(self, project: str, run: str, clock: Clock) -> None:
        self.project, self.run, self.round = project, run, 0
        self._clock = clock
        self._open: dict[str, _Open] = {}
        self._moved = clock.monotonic()
        self._waited_for = 0

    @contextmanager
    def phase(self, phase: str, step: str, missing: Missing = _nobody) -> Iterator[None]:
        """A step that is open while inside: a span of the trace, a duration, and what `tell` tells of.

        Args:
            phase: of few values: participants, train, reduce, publish, ...
            missing: gives the names of those who are waited for now.
        """
        opened = self._open[step] = _Open(phase, self._clock.monotonic(), missing)
        try:
            with span(phase, run=self.run, step=step):
                yield
        finally:
            del self._open[step]
            self._moved = self._clock.monotonic()
            catalogue.PHASE_SECONDS.observe(self._moved - opened.since, phase=phase)

    def look(self, now: float) -> Look:
        """How the run stands at `now` (monotonic)."""
        missing: dict[str, float] = {}
        for opened in self._open.values():
            for name in opened.missing():
                missing[name] = max(missing.get(name, 0.0), now - opened.since)
        if len(missing) != self._waited_for:
            # Somebody has answered, or is waited for anew.
            self._waited_for, self._moved = len(missing), now
        oldest = min(self._open.values(), key=lambda opened: opened.since, default=None)
        step = None if oldest is None else (oldest.phase, now - oldest.since)
        return Look(self.project, self.run, self.round, step, now - self._moved, missing)


@dataclass(frozen=True, slots=True)
class Look:
    """A run at one moment.

    Attributes:
        step: the oldest open step's phase and age (seconds); None where none is open.
        idle: seconds since something was answered or recorded.
        missing: seconds that each participant has been waited for.
    """

    project: str
    run: str
    round: int
    step: tuple[str, float] | None
    idle: float
    missing: dict[str, float]

    def named(self) -> dict[str, float]:
        """Those to name, longest waited for first."""
        slow = ((name, seconds) for name, seconds in self.missing.items() if seconds >= NAMED_AFTER_S)
        return dict(sorted(slow, key=lambda row: (-row[1], row[0]))[:MOST_NAMED])


class Vitals:
    """All runs of this coordinator."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._runs: dict[tuple[str, str], RunVitals] = {}

    @contextmanager
    def watching(self, run: RunVitals) -> Iterator[None]:
        """The run is among those told of while inside."""
        self._runs[run.project, run.run] = run
        try:
            yield
        finally:
            del self._runs[run.project, run.run]

    def set_gauges(self) -> None:
        """Set the gauges of all runs."""
        now = self._clock.monotonic()
        looks = sorted((run.look(now) for run in self._runs.values()), key=lambda look: -look.idle)[:MOST_RUNS]
        catalogue.RUN_ROUND.replace({(look.project, look.run): look.round for look in looks})
        catalogue.RUN_IDLE.replace({(look.project, look.run): look.idle for look in looks})
        catalogue.RUN_WAITING.replace({(look.project, look.run): len(look.missing) for look in looks})
        catalogue.RUN_STEP.replace(
            {(look.project, look.run, look.step[0]): look.step[1] for look in looks if look.step is not None}
        )
        catalogue.WAITED_FOR.replace(
            {(look.project, look.run, name): waited for look in looks for name, waited in look.named().items()}
        )


class Backlog:
    """Jobs that were asked for and are not answered, by queue. One per process, as the metrics are."""

    def __init__(self) -> None:
        self._since: dict[str, dict[int, float]] = {}
        self._numbers = itertools.count()

    @contextmanager
    def waiting(self, queue: str, clock: Clock) -> Iterator[None]:
        """One job more while inside."""
        jobs, number = self._since.setdefault(queue, {}), next(self._numbers)
        jobs[number] = clock.monotonic()
        try:
            yield
        finally:
            del jobs[number]

    def set_gauges(self, queues: Iterable[str], clock: Clock) -> None:
        """Set the gauges of these queues, and of all that were used."""
        now = clock.monotonic()
        known = {name: self._since.get(name, {}) for name in (*queues, *self._since)}
        catalogue.QUEUE_DEPTH.replace({(name,): len(jobs) for name, jobs in known.items()})
        oldest: dict[Labels, float] = {(name,): now - min(jobs.values(), default=now) for name, jobs in known.items()}
        catalogue.QUEUE_OLDEST.replace(oldest)


BACKLOG = Backlog()


def count_bytes(sent: Iterable[ObjectRef], answers: Iterable[Answer]) -> None:
    """Add a closed step to the totals that the operator sees, by what carries it: the bus, or the store."""
    rows: list[tuple[str, ObjectRef | None]] = [("down", ref) for ref in sent]
    for answer in answers:
        rows += [("up", ref) for ref in (answer.update, answer.tally, *answer.extras.values())]
    for direction, ref in rows:
        if ref is not None:
            STEP_BYTES.add(ref.size, direction=direction, carrier="bus" if ref.key is None else "store")
