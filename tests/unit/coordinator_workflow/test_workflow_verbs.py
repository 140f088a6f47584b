"""What the verbs send beside tasks: traces, exchange sessions, progress for those who watch."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from workflow_hub import PROJECT, RUN, Hub, at_work, job_of, ref_of

from hanse_coordinator.runs.journal import Journal
from hanse_coordinator.runs.roster import Roster
from hanse_coordinator.runs.settings import WorkflowSettings
from hanse_coordinator.verbs.durable import DurableVerbs
from hanse_coordinator.verbs.objects import RunObjects
from hanse_coordinator.waiting import first_of
from hanse_coordinator.watching.notices import Notices
from hanse_fabric.bus.port import Record
from hanse_fabric.messages import ExchangeJob, Lineage, ObjectRef, Progress, TaskKind
from hanse_fabric.subjects import JOB, PROGRESS, TASK
from hanse_workflows.ask import Ask
from hanse_workflows.gathering import exchange


async def test_a_round_is_one_trace_over_its_tasks_and_jobs(hub: Hub) -> None:
    seen: dict[str, Record] = {}

    async def listen() -> None:
        async with hub.bus.follow(TASK.stream, TASK.wildcard(participant="north")) as records:
            async for record in records:
                seen[TASK.parse(record.subject)["step"]] = record

    async with hub.running("north", "south"), at_work(hub.supervisor()):
        await hub.submit(job_of(rounds=2))
        await first_of(listen(), hub.ended())
    by_step = {
        step: record.headers["traceparent"].split("-")[1]
        for step, record in seen.items()
        if "traceparent" in record.headers
    }
    assert by_step["r1-train"] == by_step["r1-evaluate"] != by_step["r2-train"]


async def test_progress_of_a_site_is_passed_on_to_those_who_watch(hub: Hub) -> None:
    async with hub.running("north", "south"), at_work(hub.supervisor()):
        hub.sites["south"].behave = lambda task: None if task.step == "r1-train" else {}
        await hub.submit(job_of())
        await hub.event("task-answered", step="r1-train", participant="north")
        progress = Progress(
            project=PROJECT, run=RUN, step="r1-train", participant="south", fraction=0.5, text="epoch 1"
        )
        await hub.bus.publish(PROGRESS.of(project=PROJECT, run=RUN, participant="south"), progress.encode())
        event = await hub.event("progress", participant="south")
        assert event.data["fraction"] == 0.5


async def verbs_on(hub: Hub) -> DurableVerbs:
    """As the supervisor makes them."""
    clock, bus = hub.clock, hub.bus
    roster = Roster(bus, hub.buckets.participants, clock)
    notices = Notices(bus, clock, PROJECT, RUN, actor="service:coordinator/one")
    return DurableVerbs(
        bus=bus, clock=clock, settings=WorkflowSettings(), project=PROJECT, run=RUN, job=job_of(),
        journal=await Journal.open(bus, PROJECT, RUN, holder="one"), roster=roster, notices=notices,
        objects=RunObjects(hub.store, PROJECT), models=hub.buckets.models, progressed=lambda **_: None,
        pause=asyncio.Event(),
    )  # fmt: skip


async def test_what_was_published_is_never_removed_whichever_version_a_workflow_goes_on_from(hub: Hub) -> None:
    verbs, models = await verbs_on(hub), list[ObjectRef]()
    for number in range(3):
        data = f"model {number}".encode()
        ref = ref_of(data, inline=False).model_copy(update={"key": f"models/{PROJECT}/{RUN}/r{number}/model"})
        hub.store.put(str(ref.key), data)
        models.append(ref)
    async with hub.running():
        for number, model in enumerate(models[:2]):
            lineage = Lineage(
                run=RUN, round=number, workflow="w", participants=("north",), examples=1, strategy={}, seed=0
            )  # fmt: skip
            await verbs.publish(f"r{number}-publish", model=model, lineage=lineage, metrics={}, final=False)
        verbs.forget(models)
        await verbs.settle()
    assert [hub.store.exists(str(model.key)) for model in models] == [True, True, False]


async def test_exchange_opens_a_session_among_those_who_are_asked(hub: Hub) -> None:
    context = await verbs_on(hub)
    ask = Ask(
        kind=TaskKind.TRAIN, round=1, to=("north", "south"), config={}, seed=lambda _: 1, model=None, needed=2,
        grace=None, deadline=timedelta(minutes=1).total_seconds(), retries=0,
    )  # fmt: skip

    async def first_job() -> None:
        async with hub.bus.work(JOB.stream) as jobs:
            async for job in jobs:
                session = ExchangeJob.decode(job.record.data)
                assert (session.step, session.participants) == ("r1-train", ("north", "south"))
                return

    async with asyncio.timeout(60):
        await first_of(exchange(context, "r1-train", ask), first_job())
