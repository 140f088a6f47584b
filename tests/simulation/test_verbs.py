"""Verbs of the durable adapter as a run of ours does not use them: what is published stays, exchanges have sessions."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np

from clocks import in_virtual_time
from hanse_coordinator.runs.journal import Journal
from hanse_coordinator.runs.roster import Roster
from hanse_coordinator.runs.settings import WorkflowSettings
from hanse_coordinator.verbs.durable import DurableVerbs
from hanse_coordinator.verbs.objects import RunObjects
from hanse_coordinator.watching.notices import Notices
from hanse_fabric.messages import ExchangeJob, Lineage, ObjectRef, TaskKind
from hanse_fabric.subjects import JOB
from hanse_fabric.tensors.digest import digest_bytes
from hanse_fabric.tensors.file import encode_tensors, layout_like
from hanse_fabric.virtual_time import VirtualClock
from hanse_fabric.waiting import first_of
from hanse_schemas.job import check_job
from hanse_workflows.ask import Ask
from hanse_workflows.gathering import exchange
from simulation.league import PROJECT, RUN, League
from simulation.stories import hub_of, job_of


async def verbs_on(made: League) -> DurableVerbs:
    """As the supervisor makes them."""
    clock, bus = made.clock, made.owner
    roster = Roster(bus, made.buckets.participants, clock)
    await first_of(roster.watch(), roster.ready.wait())
    notices = Notices(bus, clock, PROJECT, RUN, actor="service:coordinator/one")
    return DurableVerbs(
        bus=bus, clock=clock, settings=WorkflowSettings(), project=PROJECT, run=RUN, job=check_job(job_of()),
        journal=await Journal.open(bus, PROJECT, RUN, holder="one"), roster=roster, notices=notices,
        objects=RunObjects(made.store, PROJECT), models=made.buckets.models, progressed=lambda **_: None,
        pause=asyncio.Event(),
    )  # fmt: skip


@in_virtual_time
async def test_what_was_published_is_never_removed_whichever_version_a_workflow_goes_on_from(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path) as made:
        verbs, models = await verbs_on(made), list[ObjectRef]()
        for number in range(3):
            arrays = {"weight": np.full(4, number, np.float32)}
            data = encode_tensors(layout_like(arrays), arrays)
            key = f"models/{PROJECT}/{RUN}/r{number}/model"
            made.store.put(key, data)
            models.append(ObjectRef(digest=digest_bytes(data)[0], size=len(data), key=key))
        for number, model in enumerate(models[:2]):
            lineage = Lineage(
                run=RUN, round=number, workflow="w", participants=("north",), examples=1, strategy={}, seed=0
            )  # fmt: skip
            await verbs.publish(f"r{number}-publish", model=model, lineage=lineage, metrics={}, final=False)
        verbs.forget(models)
        await verbs.published()
        await verbs.settle()
        assert [made.store.exists(str(model.key)) for model in models] == [True, True, False]


@in_virtual_time
async def test_a_coordinator_that_has_not_heard_of_a_site_yet_asks_the_record_of_it(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """What it hears of those who join may be late, while it takes up a run that another has asked them in."""
    async with hub_of(clock, tmp_path, "north") as made:
        late = Roster(made.owner, made.buckets.participants, clock)
        assert [await late.knows(PROJECT, name) for name in ("north", "nobody", "no name")] == [True, False, False]


@in_virtual_time
async def test_exchange_opens_a_session_among_those_who_are_asked(clock: VirtualClock, tmp_path: Path) -> None:
    ask = Ask(
        kind=TaskKind.TRAIN, round=1, to=("north", "south"), config={}, seed=lambda _: 1, model=None, needed=2,
        grace=None, deadline=60.0, retries=0,
    )  # fmt: skip
    async with hub_of(clock, tmp_path, "north", "south") as made:
        await first_of(exchange(await verbs_on(made), "r1-train", ask), clock.sleep(1.0))
        assert JOB.stream is not None
        [job] = [ExchangeJob.decode(record.data) for record in made.broker.matching(JOB.stream, ">")]
    assert (job.step, job.participants) == ("r1-train", ("north", "south"))
