"""A hub for the tests of studies: sites that add small numbers under a mask, and an aggregator that sums them.

The study itself is a tiny one, with chunks in flight, iterations that build on each other's objects, a step that is not
masked and one at the hub alone: `conduct` in the stead of `hanse_genomics.study`'s.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from functools import partial
from typing import Any

from masked_hub import MaskedHub, MaskedSite
from workflow_hub import PROJECT, key_of, ref_of

from hanse_fabric.bus.port import Bus
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import ObjectRef, Reduced, Refusal, Result, SealedSeed, StudyJob, Task, TaskKind
from hanse_fabric.messages.masking import Ring
from hanse_fabric.subjects import JOB, MASKS, REDUCED, UPDATE, Role
from hanse_genomics.bounded import run_bounded
from hanse_genomics.verbs import Asked, Handle, Made, StudyVerbs
from hanse_schemas.job import Job, check_job
from hanse_schemas.study import Study

COHORTS = ("east", "north", "south")
CHUNKS, ITERATIONS = 5, 2
RING = {"x": Ring(bits=64, fraction=0, bound=1e6)}


def study_job(**changes: Any) -> Job:
    body: dict[str, Any] = {
        "workflow": "association_study",
        "study": {"test": "trend", "in_flight": 3},
        "participants": {"minimum": 3, "deadline": 30.0, "patience": 30.0},
    }
    body["participants"] |= changes.pop("participants", {})
    return check_job(body | changes)


async def conduct(verbs: StudyVerbs, study: Study) -> dict[str, Handle]:
    """A tiny study."""
    opened = await verbs.compute(Asked("open", "open"))
    first = await verbs.compute(Asked("samples", "add", to_sites={"before": opened.outputs["sum"]}, rings=RING))

    async def one(chunk: int) -> Handle:
        made = first
        for iteration in range(ITERATIONS):
            made = await verbs.compute(
                Asked(
                    f"c{chunk}-add-{iteration}", "add", {"chunk": chunk, "iteration": iteration},
                    to_sites={"before": made.outputs["sum"]}, rings=RING,
                )
            )  # fmt: skip
        verbs.note("progress", "chunks", done=chunk)
        return made.outputs["sum"]

    sums = await run_bounded([partial(one, chunk) for chunk in range(CHUNKS)], study.in_flight)
    at_hub = {f"c{chunk}": made for chunk, made in enumerate(sums)}
    collected: Made = await verbs.compute(Asked("collect", "collect", at_hub=at_hub, sites=False))
    return {"results": collected.outputs["all"], "summary": collected.outputs["count"]}


def expected() -> list[int]:
    """What the study makes of three cohorts."""
    made = []
    for chunk in range(CHUNKS):
        total = sum(map(len, COHORTS))
        total = sum(len(name) + total for name in COHORTS)
        for iteration in range(ITERATIONS):
            total = sum(value_of(name, chunk, iteration) + total for name in COHORTS)
        made.append(total)
    return made


def value_of(name: str, chunk: int, iteration: int) -> int:
    return len(name) + 10 * chunk + iteration


class StudySite(MaskedSite):
    """Adds numbers of its own to those it is given."""

    async def work(self, task: Task, changes: dict[str, Any]) -> Result:
        if "outcome" in changes or task.kind is not TaskKind.STUDY:
            return await super().work(task, changes)
        settings, given = task.config["settings"], task.extras or {}
        value = value_of(self.name, settings.get("chunk", 0), settings.get("iteration", 0))
        for ref in given.values():
            assert ref.inline is not None
            value += json.loads(ref.inline)[0]
        common: dict[str, Any] = {
            "task": task.id, "project": PROJECT, "run": task.run, "step": task.step, "participant": self.name,
            "outcome": "done",
        }  # fmt: skip
        if task.masking is None:
            update = await self._put(task, [value])
            return self.signed_copy(Result(**common).model_copy(update={"update": update}))
        mask = 1000 + sum(map(ord, f"{self.name}{task.masking.session}"))
        update, tally = await self._put(task, [value + mask]), await self._put(task, [1 + mask])
        seed = SealedSeed.model_construct(
            participant=self.name, sealed=str(mask).encode(), tally=1, signature=b"s", update=None, parts=None
        )
        answer = Result(**common).model_copy(update={"update": update, "tally": tally, "seed": seed})
        return self.signed_copy(answer)


class StudyHub(MaskedHub):
    """`tampered` names sites whose answers are refused in a step; each refusal is used up."""

    site = StudySite

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.tampered: dict[str, str] = {}
        self.jobs: list[StudyJob] = []

    async def aggregate(self) -> None:
        bus = await self.connect(Role.AGGREGATOR)
        async with bus.work(JOB.stream) as jobs:
            async for held in jobs:
                job = StudyJob.decode(held.record.data)
                subject = REDUCED.of(project=job.project, run=job.run, step=job.step, job=job.id)
                # As the real one: what was answered is not answered again.
                if await bus.last(REDUCED.stream, subject) is None:
                    self.jobs.append(job)
                    self.reduced[key_of(job)] += 1
                    await bus.publish(subject, (await self.study(bus, job)).encode())
                with suppress(HanseError, TimeoutError):
                    async with asyncio.timeout(1):
                        await held.done()

    async def study(self, bus: Bus, job: StudyJob) -> Reduced:
        common: dict[str, Any] = {"job": job.id, "project": job.project, "run": job.run, "step": job.step}
        if name := self.tampered.pop(key_of(job), None):
            return Reduced(**common, refused=(Refusal(participant=name, reason="other bytes", code="tampered"),))
        if job.function == "collect":
            found = [json.loads(job.inputs[name].inline or b"")[0] for name in sorted(job.inputs)]
            made = {"all": self._inline(found), "count": self._inline([len(found)])}
            return Reduced(**common, outputs=made, facts={"chunks": len(found)})
        assert [update.participant for update in job.updates] == list(COHORTS)
        rows = [await self._number(bus, job, update.participant, update.ref) for update in job.updates]
        masks = 0
        if job.sum is not None and job.sum.masks is not None:
            subject = MASKS.of(project=PROJECT, run=job.run, session=job.sum.session, digest=job.sum.masks.tally.digest)
            record = await bus.last(MASKS.stream, subject)
            assert record is not None
            masks = json.loads(record.data)
        return Reduced(**common, outputs={"sum": self._inline([sum(rows) - masks])}, facts={"sum": sum(rows) - masks})

    def _inline(self, values: list[int]) -> ObjectRef:
        return ref_of(json.dumps(values).encode(), inline=True)

    async def _number(self, bus: Bus, job: StudyJob, participant: str, ref: ObjectRef) -> int:
        subject = UPDATE.of(project=PROJECT, run=job.run, participant=participant, digest=ref.digest)
        record = await bus.last(UPDATE.stream, subject)
        assert record is not None
        return int(json.loads(record.data)[0])
