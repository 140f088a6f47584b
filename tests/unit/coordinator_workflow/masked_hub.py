"""A hub whose sites mask their answers with a number, which a small compensator adds up and the aggregator subtracts.

The compensator is as strict as the real one: one set of a session, once.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from workflow_hub import PROJECT, Hub, Site, job_of, loud, ref_of, stopped

from hanse_fabric.bus.port import Bus
from hanse_fabric.messages import (
    CompensatorRecord,
    JobKind,
    MaskAnswer,
    MaskingMode,
    MaskRequest,
    MaskSum,
    ObjectRef,
    Reduced,
    ReduceJob,
    Refusal,
    Result,
    SealedSeed,
    Tally,
    Task,
    TaskKind,
)
from hanse_fabric.records import Bucket
from hanse_fabric.subjects import COMPENSATORS, MASK_ANSWER, MASK_REQUEST, MASKS, UPDATE, Role
from hanse_schemas.job import Job

KEY_BYTES = b"k" * 32


def masked_job(**changes: Any) -> Job:
    body = {"secure_aggregation": {"mode": "compensator"}, "participants": {"minimum": 3, "deadline": 30.0}}
    return job_of(**{**body, **changes})


class MaskedSite(Site):
    """Adds a number of its own to every value; the number is its seed."""

    async def work(self, task: Task, changes: dict[str, Any]) -> Result:
        if task.masking is None:
            return await super().work(task, changes)
        mask = (
            0 if task.masking.mode is MaskingMode.RING else 1000 + sum(map(ord, f"{self.name}{task.masking.session}"))
        )
        update = None
        if task.kind is TaskKind.TRAIN:
            update = await self._put(task, [task.seed % 1000 + mask, 1 + mask])
        tally = await self._put(task, [1 + mask, task.round + mask])
        seed = SealedSeed(
            participant=self.name, sealed=base64.b64encode(str(mask).encode()), tally=1,
            signature=base64.b64encode(b"s"),
        )  # fmt: skip
        common = {"examples": 0, "metrics": {}, "update": update} | changes
        result = await super().work(task, common)
        # A copy takes bytes as they are; validation would take them for base64.
        return self.signed_copy(result.model_copy(update={"update": update, "tally": tally, "seed": seed}))

    def signed_copy(self, result: Result) -> Result:
        return result.model_copy(
            update={"signature": self.key.sign(result.canonical(without=frozenset({"signature"})))}
        )

    async def _put(self, task: Task, values: list[int]) -> ObjectRef:
        data = json.dumps(values).encode()
        ref = ref_of(data, inline=False)
        subject = UPDATE.of(project=PROJECT, run=task.run, participant=self.name, digest=ref.digest)
        await self._bus.publish(subject, data)
        return ref


class MaskedHub(Hub):
    """With a compensator. `spoiled` names sites whose seeds it refuses."""

    site: type[MaskedSite] = MaskedSite

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.sums: dict[str, tuple[str, ...]] = {}
        self.asked: Counter[str] = Counter()
        self.spoiled: set[str] = set()
        self.minimum = 3

    @asynccontextmanager
    async def masked(self, *names: str) -> AsyncIterator[None]:
        """Sites that can mask, the compensator and the rest at work."""
        compensator = await self.connect(Role.COMPENSATOR)
        record = CompensatorRecord(public_key=base64.b64encode(KEY_BYTES), version="0", at=datetime.now(UTC))
        await Bucket(compensator, COMPENSATORS, CompensatorRecord).create(record, name="one")
        tasks = [asyncio.ensure_future(loud(self.compensate(compensator)))]
        async with self.running():
            for name in names:
                site = self.sites[name] = self.site(self, name)
                await site.enrol()
                tasks.append(asyncio.ensure_future(loud(site.run())))
            try:
                yield
            finally:
                await stopped(*tasks)

    async def compensate(self, bus: Bus) -> None:
        async with bus.work(MASK_REQUEST.stream) as jobs:
            async for held in jobs:
                request = MaskRequest.decode(held.record.data)
                self.asked[request.session] += 1
                answer = await self.answer(bus, request)
                subject = MASK_ANSWER.of(project=PROJECT, run=request.run, session=request.session)
                await bus.publish(subject, answer.encode())
                await held.done()

    async def answer(self, bus: Bus, request: MaskRequest) -> MaskAnswer:
        names = tuple(member.participant for member in request.members)
        common: dict[str, Any] = {
            "project": PROJECT, "run": request.run, "session": request.session, "participants": names,
        }  # fmt: skip
        if spoiled := tuple(sorted(self.spoiled & set(names))):
            return MaskAnswer(**common, refused=spoiled, code="tampered", reason="the seal does not open")
        if len(names) < self.minimum:
            return MaskAnswer(**common, code="forbidden", reason=f"{len(names)} are fewer than {self.minimum}")
        if self.sums.setdefault(request.session, names) != names:
            return MaskAnswer(**common, code="conflict", reason="another set was answered")
        data = json.dumps(sum(int(member.sealed) for member in request.members)).encode()
        ref = ref_of(data, inline=False)
        subject = MASKS.of(project=PROJECT, run=request.run, session=request.session, digest=ref.digest)
        await bus.publish(subject, data)
        return MaskAnswer(**common, sum=MaskSum(update=ref, tally=ref))

    async def reduce(self, bus: Bus, job: ReduceJob) -> Reduced:
        if job.sum is None:
            return await super().reduce(bus, job)
        common: dict[str, Any] = {"job": job.id, "project": job.project, "run": job.run, "step": job.step}
        refused = [update.participant for update in job.updates if update.participant in self.refuse]
        if refused and job.kind is not JobKind.TALLY:
            refusals = [Refusal(participant=name, reason=self.refuse[name], code="tampered") for name in refused]
            return Reduced(**common, refused=tuple(refusals))
        masks = 0
        if job.sum.masks is not None:
            subject = MASKS.of(project=PROJECT, run=job.run, session=job.sum.session, digest=job.sum.masks.tally.digest)
            record = await bus.last(MASKS.stream, subject)
            assert record is not None
            masks = json.loads(record.data)
        outputs = {}
        if job.kind is not JobKind.TALLY:
            start = json.loads(job.model.inline) if job.model is not None and job.model.inline else [0, 0]
            rows = [await self._values(bus, job, u.participant, u.ref) for u in job.updates]
            total = [a + sum(column) - masks for a, column in zip(start, zip(*rows, strict=True), strict=True)]
            outputs["model"] = ref_of(json.dumps(total).encode(), inline=True)
        tallies = [await self._values(bus, job, u.participant, u.tally or u.ref) for u in job.updates]
        weight, metric = (sum(column) - masks for column in zip(*tallies, strict=True))
        return Reduced(**common, outputs=outputs, tally=Tally(weight=weight, metrics={"accuracy": metric / weight}))

    async def _values(self, bus: Bus, job: ReduceJob, participant: str, ref: ObjectRef) -> list[int]:
        subject = UPDATE.of(project=PROJECT, run=job.run, participant=participant, digest=ref.digest)
        record = await bus.last(UPDATE.stream, subject)
        assert record is not None
        values: list[int] = json.loads(record.data)
        return values
