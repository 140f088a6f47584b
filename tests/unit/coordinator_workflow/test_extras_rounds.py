"""What an algorithm exchanges beside the model (SCAFFOLD's control): reduced with it, of the same sites, replayed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from workflow_hub import PROJECT, Hub, MortalBus, Site, at_work, job_of, key_of, ref_of, stopped

from hanse_fabric.bus.port import Bus
from hanse_fabric.messages import ObjectRef, Reduced, ReduceJob, Refusal, Task, TaskKind
from hanse_fabric.subjects import UPDATE
from hanse_schemas.job import Job
from hanse_workflows.round_state import RoundState, former_name, reduce_options

DELTA = {"north": 3.0, "south": 6.0, "east": 9.0}


class ControlHub(Hub):
    """Its sites answer with a control of their own; its aggregator moves a control by the rate times the mean."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.jobs: list[ReduceJob] = []
        self.tasks: dict[tuple[str, str], Task] = {}
        self.spoilt: set[str] = set()
        self.storing = False
        self.there: list[list[str]] = []
        self.sending: list[asyncio.Future[int]] = []

    async def reduce(self, bus: Bus, job: ReduceJob) -> Reduced:
        self.jobs.append(job)
        if not key_of(job).endswith("-control"):
            return await super().reduce(bus, job)
        common: dict[str, Any] = {"job": job.id, "project": job.project, "run": job.run, "step": job.step}
        if spoilt := sorted(self.spoilt & {row.participant for row in job.updates}):
            refused = tuple(Refusal(participant=name, reason="not finite", code="invalid-input") for name in spoilt)
            return Reduced(**common, refused=refused)
        rows = []
        for row in job.updates:
            subject = UPDATE.of(project=job.project, run=job.run, participant=row.participant, digest=row.ref.digest)
            record = await bus.last(UPDATE.stream, subject)
            number = self.number(row.ref) if record is None else json.loads(record.data)[0]
            rows += [number] * int(row.weight)
        former = 0.0 if job.model is None else self.number(job.model)
        made = json.dumps([former + job.strategy["optimizer"]["lr"] * sum(rows) / len(rows)]).encode()
        ref = ref_of(made, inline=not self.storing)
        if self.storing:
            async with asyncio.timeout(60):  # what is no longer needed is deleted beside the round, not before it
                while len(self.kept_controls()) > 1:  # noqa: ASYNC110 - a file's end has no event
                    await asyncio.sleep(0.01)
            self.there.append(self.kept_controls())
            ref = ref.model_copy(update={"key": f"{job.output_key}/model"})
            self.store.put(str(ref.key), made)
        return Reduced(**common, outputs={"model": ref})

    def controls(self) -> list[ReduceJob]:
        return [job for job in self.jobs if key_of(job).endswith("-control")]

    def behaving(self) -> None:
        for site in self.sites.values():
            site.behave = lambda task, site=site: self.answer(site, task)  # type: ignore[misc]

    def answer(self, site: Site, task: Task) -> dict[str, Any]:
        self.tasks[task.step, site.name] = task
        if task.kind is not TaskKind.TRAIN:
            return {}
        data = json.dumps([DELTA[site.name]]).encode()
        ref = ref_of(data, inline=False)
        subject = UPDATE.of(project=PROJECT, run=task.run, participant=site.name, digest=ref.digest)
        self.sending.append(asyncio.ensure_future(site._bus.publish(subject, data)))
        return {"extras": {"control": ref}, "info": {"first_loss": 0.5 * task.round, "steps": 4.0}}

    def number(self, ref: ObjectRef) -> float:
        """What a control is."""
        data = ref.inline
        if data is None:
            buffer = bytearray(ref.size)
            self.store.read_into(str(ref.key), 0, memoryview(buffer))
            data = bytes(buffer)
        return float(json.loads(data)[0])

    def kept_controls(self) -> list[str]:
        """The ids of the reductions whose controls are in the store."""
        return [key_of(job) for job in self.controls() if self.store.exists(f"{job.output_key}/model")]


@pytest.fixture
def hub(tmp_path: Path) -> ControlHub:
    return ControlHub(tmp_path)


def scaffold(**changes: Any) -> Job:
    return job_of(train={"algorithm": {"name": "scaffold"}}, **changes)


async def test_a_control_begins_at_zero_moves_by_the_share_of_all_and_goes_to_the_next_rounds_sites(
    hub: ControlHub,
) -> None:
    wanted = {"minimum": 2, "fraction": 0.6}
    async with hub.running("east", "north", "south"), at_work(hub.supervisor()):
        hub.behaving()
        await hub.submit(scaffold(participants=wanted))
        assert (await hub.ended()).reason == ""
    controls, expected = hub.controls(), 0.0
    assert [(key_of(job), job.from_zero, job.model is None) for job in controls] == [
        ("r1-reduce-control", True, True), ("r2-reduce-control", None, False), ("r3-reduce-control", None, False)
    ]  # fmt: skip
    for number, job in enumerate(controls, start=1):
        names = [row.participant for row in job.updates]
        assert len(names) == 2
        assert names == [
            row.participant for row in next(j for j in hub.jobs if key_of(j) == f"r{number}-reduce").updates
        ]
        assert {row.weight for row in job.updates} == {1.0}
        assert job.strategy["optimizer"] == {"name": "sgd", "lr": 2 / 3, "momentum": 0.0}
        expected += sum(DELTA[name] for name in names) / 3
        for name in names:
            given = hub.tasks[f"r{number}-train", name].extras
            assert given == (None if number == 1 else {"control": controls[number - 1].model})
    last = next(job for job in controls if key_of(job).startswith("r3"))
    assert last.model is not None
    assert hub.number(last.model) == pytest.approx(expected - sum(DELTA[u.participant] for u in last.updates) / 3)


async def test_a_control_stays_the_mean_of_all_when_participants_join_later(hub: ControlHub) -> None:
    async with hub.running("north", "south"), at_work(hub.supervisor()):
        hub.behaving()
        usual = hub.sites["north"].behave
        came, asked = asyncio.Event(), asyncio.Event()

        def behave(task: Task) -> dict[str, Any] | None:
            if task.step == "r1-evaluate" and not came.is_set():
                asked.set()
                return None
            return usual(task)

        hub.sites["north"].behave = behave
        await hub.submit(scaffold(participants={"minimum": 2}))
        async with asyncio.timeout(60):
            await asked.wait()
        east = hub.sites["east"] = Site(hub, "east")
        await east.enrol()
        hub.behaving()
        came.set()
        async with asyncio.TaskGroup() as group:
            at_it = [group.create_task(site.run()) for site in (east, hub.sites["north"])]
            assert (await hub.ended()).reason == ""
            for each in at_it:
                each.cancel()
    first, second, third = hub.controls()
    assert [row.participant for row in second.updates] == ["east", "north", "south", "former-control"]
    assert (second.model, second.from_zero, second.updates[-1].weight) == (None, True, 2.0)
    mean = (DELTA["north"] + DELTA["south"]) / 2
    assert hub.number(second.updates[-1].ref) == pytest.approx(mean)
    assert third.model is not None
    # East's first change and the others' second over the three, beside what the two had before.
    assert hub.number(third.model) == pytest.approx((2 * mean + sum(DELTA.values())) / 3)
    assert first.strategy["optimizer"]["lr"] == third.strategy["optimizer"]["lr"] == 1.0


def test_the_former_mean_is_called_as_no_participant() -> None:
    assert former_name("control", ["north"]) == "former-control"
    assert former_name("control", ["former-control"]) == "former-controlx"


async def test_an_answer_without_the_control_is_none(hub: ControlHub) -> None:
    async with hub.running("north", "south"), at_work(hub.supervisor()):
        hub.behaving()
        hub.sites["south"].behave = lambda _: {}
        await hub.submit(scaffold(participants={"minimum": 2, "retries": 0}))
        record = await hub.ended()
    assert record.state == "failed"
    assert "south failed (extras: control is not given, which the job's algorithm needs)" in record.reason


async def test_whose_control_is_refused_is_in_the_model_neither(hub: ControlHub) -> None:
    hub.spoilt = {"east"}
    async with hub.running("east", "north", "south"), at_work(hub.supervisor()):
        hub.behaving()
        await hub.submit(scaffold(rounds=2, participants={"minimum": 2, "quorum": 0.5}))
        assert (await hub.ended()).state == "completed"
    done = {key_of(job): [row.participant for row in job.updates] for job in hub.jobs}
    assert done["r1-reduce"] == done["r1-reduce-control"] == ["east", "north", "south"]
    assert done["r1-reduce-a2"] == done["r1-reduce-a2-control"] == ["north", "south"]
    assert [e.data["participant"] for e in await hub.events("refused")] == ["east", "east"]
    assert hub.tasks["r2-train", "east"].trained == 0
    assert hub.tasks["r2-train", "north"].trained == 1


async def test_each_site_is_told_its_own_last_round_that_counted(hub: ControlHub) -> None:
    async with hub.running("east", "north", "south"), at_work(hub.supervisor()):
        hub.behaving()
        usual = hub.sites["east"].behave
        hub.sites["east"].behave = lambda task: {"outcome": "failed"} if task.step == "r2-train" else usual(task)
        await hub.submit(job_of(participants={"minimum": 2, "quorum": 0.5, "retries": 0}))
        assert (await hub.ended()).reason == ""
    told = {step: task.trained for (step, name), task in hub.tasks.items() if name == "east"}
    # Whether a step that closed at its quorum asked east does not matter: what it was asked says so.
    expected = {"r1-train": 0, "r1-evaluate": 1, "r2-evaluate": 1, "r3-train": 1, "r3-evaluate": 3}
    assert {step: told[step] for step in expected} == expected
    assert told.get("r0-initialize") is None


async def test_numbers_that_a_strategy_needs_are_asked_for_and_reach_it(hub: ControlHub) -> None:
    async with hub.running("north", "south"), at_work(hub.supervisor()):
        hub.behaving()
        await hub.submit(job_of(rounds=2, strategy={"reduction": {"name": "qfedavg", "q": 1.0, "lr": 0.1}}))
        assert (await hub.ended()).reason == ""
    assert hub.tasks["r1-train", "north"].config["info"] == ["first_loss"]
    job = next(job for job in hub.jobs if key_of(job) == "r2-reduce")
    assert [row.info for row in job.updates] == [{"first_loss": 1.0}, {"first_loss": 1.0}]


async def test_an_answer_without_such_a_number_is_none(hub: ControlHub) -> None:
    async with hub.running("north", "south"), at_work(hub.supervisor()):
        strategy = {"reduction": {"name": "qfedavg", "q": 1.0, "lr": 0.1}}
        await hub.submit(job_of(strategy=strategy, participants={"retries": 0}))
        record = await hub.ended()
    assert "info.first_loss: None is not a finite number, which the job's strategy needs" in record.reason


async def test_feddyns_server_is_told_the_share_that_takes_part_unless_the_job_says_it(hub: ControlHub) -> None:
    strategy = {"optimizer": {"name": "feddyn", "alpha": 0.1}}
    async with hub.running("east", "north", "south"), at_work(hub.supervisor()):
        await hub.submit(job_of(rounds=1, strategy=strategy, participants={"minimum": 2, "fraction": 0.6}))
        assert (await hub.ended()).reason == ""
    job = next(job for job in hub.jobs if key_of(job) == "r1-reduce")
    assert job.strategy["optimizer"] == {"name": "feddyn", "alpha": 0.1, "share": 2 / 3}
    strategy["optimizer"]["share"] = 0.25  # type: ignore[index]
    said = reduce_options(job_of(strategy=strategy), RoundState().seeing("abc"), None).strategy
    assert said is not None
    assert said(3) == strategy


@pytest.mark.parametrize("stored", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(8, 62, 3))
async def test_a_coordinator_killed_at_any_publication_carries_the_same_controls(
    hub: ControlHub, tmp_path_factory: pytest.TempPathFactory, at: int, stored: bool
) -> None:
    calm = ControlHub(tmp_path_factory.mktemp("calm"))
    async with calm.running("north", "south"), at_work(calm.supervisor()):
        calm.behaving()
        await calm.submit(scaffold(rounds=3))
        expected = (await calm.ended()).model_digest
    async with hub.running("north", "south"):
        hub.behaving()
        mortal = MortalBus(hub.broker, at=at, stored=stored)
        first = asyncio.ensure_future(hub.supervisor(mortal).run())
        await hub.submit(scaffold(rounds=3))
        ended = asyncio.ensure_future(hub.ended())
        died = asyncio.ensure_future(mortal.dead.wait())
        await asyncio.wait([ended, died], return_when=asyncio.FIRST_COMPLETED)
        async with at_work(hub.supervisor()):
            record = await ended
        mortal.buried.set()
        await stopped(first, died)
    assert (record.state, record.reason, record.model_digest) == ("completed", "", expected)
    assert told(hub) == told(calm)


def told(hub: ControlHub) -> dict[str, ReduceJob]:
    """The control's reductions by id: asked twice, they are asked for the same."""
    jobs: dict[str, ReduceJob] = {}
    for job in hub.controls():
        assert jobs.setdefault(job.id, job) == job
    return jobs


async def test_a_small_control_that_is_too_much_for_all_tasks_rests_in_the_store(hub: ControlHub) -> None:
    async with hub.running("north", "south"), at_work(hub.supervisor(inline_limit=1)):
        hub.behaving()
        await hub.submit(scaffold(rounds=2))
        assert (await hub.ended()).reason == ""
    extras = hub.tasks["r2-train", "north"].extras
    assert extras is not None
    assert extras["control"].inline is None
    assert hub.store.exists(str(extras["control"].key))


async def test_of_controls_in_the_store_the_former_one_goes_with_each_round_and_the_last_with_the_run(
    hub: ControlHub,
) -> None:
    hub.storing = True
    async with hub.running("north", "south"), at_work(hub.supervisor()):
        hub.behaving()
        await hub.submit(scaffold())
        assert (await hub.ended()).reason == ""
    assert hub.there == [[], ["r1-reduce-control"], ["r2-reduce-control"]]
    assert hub.kept_controls() == []
