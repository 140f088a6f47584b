"""A hub whose sites mask their answers pairwise, by the real protocol, on small arrays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
from masked_hub import MaskedHub, MaskedSite, masked_job
from workflow_hub import PROJECT, loud, ref_of, stopped

from hanse_fabric.bus.port import Bus
from hanse_fabric.messages import JobKind, MaskingMode, Reduced, ReduceJob, Refusal, Result, Tally, Task, TaskKind
from hanse_privacy.pairwise.site import MaskingNote, PairwiseSite
from hanse_privacy.pairwise.streams import residual_masks
from hanse_schemas.job import Job

PROTOCOL = {TaskKind.ADVERTISE, TaskKind.SHARE, TaskKind.UNMASK}


def pairwise_job(**changes: Any) -> Job:
    return masked_job(**{"secure_aggregation": {"mode": "pairwise"}, **changes})


class PairwiseActor(MaskedSite):
    """A site that has the datapod's part of the protocol. `pairwise` may be replaced: its disk was lost."""

    def __init__(self, hub: PairwiseHub, name: str) -> None:
        super().__init__(hub, name)
        self.pairwise = self.started(hub.folder / "sites" / name)

    def started(self, folder: Path) -> PairwiseSite:
        return PairwiseSite(folder, self.key, project=PROJECT, participant=self.name)

    async def work(self, task: Task, changes: dict[str, Any]) -> Result:
        masking = task.masking
        if masking is None or masking.mode is MaskingMode.RING or "outcome" in changes:
            return await super().work(task, changes)
        payload = task.payload or b""
        if task.kind in PROTOCOL:
            answered = {
                TaskKind.ADVERTISE: lambda: self.pairwise.advertise(task.run),
                TaskKind.SHARE: lambda: self.pairwise.share(task.run, payload, session=masking.session),
                TaskKind.UNMASK: lambda: self.pairwise.unmask(task.run, payload, session=masking.session),
            }[task.kind]()
            result = self.result(task)
            return self.signed_copy(result.model_copy(update={"payload": answered} | changes))
        note = self.pairwise.masks(task.run, payload, session=masking.session, task=task.id)
        update = None
        if task.kind is TaskKind.TRAIN:
            update = await self._put(task, self._masked([task.seed % 1000, 1], note, tally=False))
        tally = await self._put(task, self._masked([1, task.round], note, tally=True))
        result = self.result(task)
        return self.signed_copy(
            result.model_copy(update={"update": update, "tally": tally, "payload": note.payload} | changes)
        )

    def result(self, task: Task) -> Result:
        return Result(
            task=task.id, project=PROJECT, run=task.run, step=task.step, participant=self.name, outcome="done"
        )  # fmt: skip

    def _masked(self, values: list[int], note: MaskingNote, *, tally: bool) -> list[int]:
        elements = np.array(values, dtype=np.uint64)
        (note.masks.apply_tally if tally else note.masks.apply)(elements, 0)
        return [int(element) for element in elements]


class PairwiseHub(MaskedHub):
    """Its aggregator adds modulo 2^64 and takes off what the recovery says."""

    def __init__(self, folder: Path, *args: Any, **options: Any) -> None:
        super().__init__(folder, *args, **options)
        self.folder = folder
        self.sets: dict[str, tuple[str, ...]] = {}

    @asynccontextmanager
    async def pairwise(self, *names: str) -> AsyncIterator[None]:
        tasks = []
        async with self.running():
            for name in names:
                site = self.sites[name] = PairwiseActor(self, name)
                await site.enrol()
                tasks.append(asyncio.ensure_future(loud(site.run())))
            try:
                yield
            finally:
                await stopped(*tasks)

    async def reduce(self, bus: Bus, job: ReduceJob) -> Reduced:
        if job.sum is None or job.sum.mode is not MaskingMode.PAIRWISE:
            return await super().reduce(bus, job)
        common: dict[str, Any] = {"job": job.id, "project": job.project, "run": job.run, "step": job.step}
        refused = [update.participant for update in job.updates if update.participant in self.refuse]
        if refused and job.kind is not JobKind.TALLY:
            return self.refusals(common, refused)
        self.sets[job.sum.session] = tuple(update.participant for update in job.updates)
        assert job.sum.recovery is not None
        residual = residual_masks(job.sum.recovery)
        outputs = {}
        if job.kind is not JobKind.TALLY:
            total = await self._sum(bus, job, [(u.participant, u.ref) for u in job.updates])
            residual.apply(total, 0)
            start = json.loads(job.model.inline) if job.model is not None and job.model.inline else [0, 0]
            moved = [a + int(b) for a, b in zip(start, total, strict=True)]
            outputs["model"] = ref_of(json.dumps(moved).encode(), inline=True)
        tally = await self._sum(bus, job, [(u.participant, u.tally or u.ref) for u in job.updates])
        residual.apply_tally(tally)
        weight, metric = (int(element) for element in tally)
        return Reduced(**common, outputs=outputs, tally=Tally(weight=weight, metrics={"accuracy": metric / weight}))

    def refusals(self, common: dict[str, Any], names: list[str]) -> Reduced:
        refused = [Refusal(participant=name, reason=self.refuse[name], code="tampered") for name in names]
        return Reduced(**common, refused=tuple(refused))

    async def _sum(self, bus: Bus, job: ReduceJob, rows: list[tuple[str, Any]]) -> Any:
        total = np.zeros(2, dtype=np.uint64)
        for participant, ref in rows:
            total += np.array(await self._values(bus, job, participant, ref), dtype=np.uint64)
        return total
