"""What stories of runs begin with: a small job, a hub whose network and sites are quick, and what came of it all."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hanse_coordinator.records import RunRecord
from hanse_fabric.messages import ReduceJob
from hanse_fabric.subjects import JOB
from hanse_fabric.virtual_time import VirtualClock
from simulation.faults import Fault
from simulation.league import League, league
from simulation.network import Weather
from simulation.trainer import Trainer

QUICK = Weather(latency_s=0.0)


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


def outcomes_when_killed(
    folder: Path,
    sites: Sequence[str],
    job: dict[str, Any],
    *,
    every: int,
    process: str = "coordinator-0",
    told: Callable[[League, RunRecord], object],
    faults: Mapping[str, Sequence[Fault]] | None = None,
    **more: Any,
) -> list[object]:
    """What `told` says of the run when nobody dies, and when a process dies at its n-th publication and comes back: for
    every so many n, at odd ones just before the message is stored, at even ones just after it. More is of `league`."""

    async def run(clock: VirtualClock, at: int) -> tuple[object, int]:
        async with hub_of(clock, folder / str(at), *sites, **more) as made:
            for site, its in (faults or {}).items():
                made.let(site, *its)
            dying = made.processes[process]
            before = dying.death.publications
            death = made.group.create_task(dying.died(at, stored=at % 2 == 0))
            death.add_done_callback(lambda done: None if done.cancelled() else dying.start(made.group))
            record = await completed(made, job)
            publications = dying.death.publications - before
            await clock.sleep(1.0)  # at the last publications it dies after the run's end
            assert death.done() == (at > 0), f"at {at} of {dying.death.publications} it did not die"
            death.cancel()
            return told(made, record), publications

    def played(at: int) -> tuple[object, int]:
        clock = VirtualClock()
        return clock.run(run(clock, at))

    calm, publications = played(0)
    return [calm, *(played(at)[0] for at in range(1, publications - 1, every))]
