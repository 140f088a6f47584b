"""What stories of runs begin with: a small job, a hub whose network and sites are quick, and what came of it all."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hanse_coordinator.records import RunRecord
from hanse_fabric.messages import ReduceJob
from hanse_fabric.subjects import JOB
from hanse_fabric.virtual_time import VirtualClock
from simulation.faults import Fault
from simulation.league import League, league
from simulation.network import QUICK
from simulation.trainer import Trainer


def job_of(**changes: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "rounds": 3,
        "model": {"name": "linear"},
        "participants": {"minimum": 2, "deadline": 30.0, "patience": 30.0},
    }
    body["participants"] |= changes.pop("participants", {})
    return body | changes


@asynccontextmanager
async def hub_of(clock: VirtualClock, folder: Path, *sites: str, **more: Any) -> AsyncIterator[League]:
    """The league of these sites; `more` as for `league`."""
    quick: dict[str, Any] = {"weather": QUICK, "worker": lambda clock, number: Trainer(clock, number, 0.1)}
    async with league(clock, folder, sites=sites, **(quick | more)) as made:
        yield made


async def ended(made: League, job: dict[str, Any]) -> RunRecord:
    """The record of the job's run, when it has ended."""
    await made.submit(**job)
    return await made.ended()


async def completed(made: League, job: dict[str, Any]) -> RunRecord:
    """As `ended`, of a run that must be completed."""
    record = await ended(made, job)
    assert (record.state, record.reason) == ("completed", ""), record.reason
    return record


def reductions(made: League) -> dict[int, dict[str, Any]]:
    """What the aggregators were asked for, by round; asked again, it is the same."""
    asked: dict[int, dict[str, Any]] = {}
    for job in made.published(JOB, ReduceJob):
        if job.step.endswith("-reduce"):
            assert asked.setdefault(job.round, job.strategy["reduction"]) == job.strategy["reduction"]
    return asked


def told_to_people(made: League, record: RunRecord) -> str:
    """All that people can read of a run: its record, events and audit."""
    return record.model_dump_json() + "".join(event.model_dump_json() for event in (*made.events(), *made.audits()))


def answers(made: League) -> Counter[tuple[str, str]]:
    """How many different answers each site gave at each step: 1 where it gave the same again."""
    different = {
        (name, result.step, result.encode()) for name, site in made.conduct.items() for result in site.answered
    }
    return Counter((name, step) for name, step, _ in different)


def heard(made: League, site: str) -> list[str]:
    """The steps of whose tasks a site has heard, in order, once each."""
    return list(dict.fromkeys(task.step for task in made.conduct[site].heard))


EVERY_KILL = os.environ.get("HANSE_EVERY_KILL") == "1"
"""Whether each process dies at each of its steps, in a run of its own each time (`make kills`), or at some of them."""
APART = {"coordinator-0": 16, "aggregator-0": 8}
"""Publications between two deaths of a process; of the others 4 do."""


@dataclass(frozen=True, slots=True)
class Calm:
    """A run in which nobody died: what `told` says of it, and how much each process has published."""

    outcome: object
    publications: Mapping[str, int]


def outcomes_when_killed(
    folder: Path,
    sites: Sequence[str],
    job: dict[str, Any],
    *,
    every: int,
    apart: int | None = None,
    process: str = "coordinator-0",
    told: Callable[[League, RunRecord], object],
    faults: Mapping[str, Sequence[Fault]] | None = None,
    calm: list[Calm] | None = None,
    known: bool = False,
    **more: Any,
) -> list[object]:
    """What `told` says of the run when nobody dies, and, once for each death, of runs in which a process dies at its
    n-th publication, comes back, and dies again some `apart` publications later, to the run's end. The runs' first n
    are 1, 1 + every and so on up to `apart`. Every other time it dies just before the message is stored, else just
    after it. More is of `league`.

    Args:
        apart: no less than `every`, and what it takes to go on after it came back; 0: each death is in its own run.
        calm: the run in which nobody dies, where it was played before; else it is kept here, for other processes.
        known: what all runs must say is known otherwise, so that none is played in which nobody dies.
    """
    apart = APART.get(process, 4) if apart is None else apart
    apart, every = (0, 1) if EVERY_KILL else (max(apart, every) if apart else 0, every)

    async def run(clock: VirtualClock, first: int) -> tuple[Calm, int]:
        deaths = 0

        async def die(made: League) -> None:
            nonlocal deaths
            dying = made.processes[process]
            at = first
            while at:
                await dying.died(at, stored=(first + deaths) % 2 == 0)
                deaths, at = deaths + 1, apart and apart + deaths  # ever later, so that it goes on in the end
                dying.start(made.group)

        async with hub_of(clock, folder / str(first), *sites, **more) as made:
            for site, its in (faults or {}).items():
                made.let(site, *its)
            before = published(made)
            dying = made.group.create_task(die(made))
            record = await completed(made, job)
            since = {name: count - before[name] for name, count in published(made).items()}
            await clock.sleep(1.0)  # at the last publications it dies after the run's end
            assert bool(deaths) == bool(first), f"at {first} of {since[process]} it did not die"
            dying.cancel()
            return Calm(told(made, record), since), deaths

    def published(made: League) -> dict[str, int]:
        return {name: each.death.publications for name, each in made.processes.items()}

    def played(first: int) -> tuple[Calm, int]:
        clock = VirtualClock()
        return clock.run(run(clock, first))

    outcomes: list[object] = []
    last = apart
    if not known or not apart:
        [undisturbed] = calm or [played(0)[0]]
        if calm is not None:
            calm[:] = [undisturbed]
        publications = undisturbed.publications[process]
        outcomes, last = [undisturbed.outcome], min(apart or publications, publications - 2)
    for first in range(1, last + 1, every):
        found, deaths = played(first)
        outcomes += [found.outcome] * deaths
    return outcomes
