"""Aggregators with devices: what combined a round's updates is in the model's lineage, and a fallback is told once."""

from __future__ import annotations

from pathlib import Path

from workflow_hub import Hub, at_work, job_of

from hanse_fabric.bus.port import Bus
from hanse_fabric.messages import JobKind, PublishModel, Reduced, ReduceJob

WARNING = "HANSE_REDUCE_DEVICE is cuda, but torch sees no such device: the processor is used"


class DeviceHub(Hub):
    """Its replicas take turns: one has a GPU, the other should have one; the registry notes what it is told."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.lineages: dict[int, tuple[str, ...] | None] = {}

    async def reduce(self, bus: Bus, job: ReduceJob) -> Reduced:
        reduced = await super().reduce(bus, job)
        if job.model is None or job.kind not in (JobKind.WHOLE, JobKind.SHARD):
            return reduced
        told = {"device": "cuda:0 X"} if job.round == 1 else {"warning": WARNING}
        return reduced.model_copy(update=told)

    async def register(self, subject: str, data: bytes) -> bytes:
        request = PublishModel.decode(data)
        self.lineages[request.lineage.round] = request.lineage.reduced_on
        return await super().register(subject, data)


async def test_the_device_is_in_the_lineage_and_a_fallback_is_told_once(tmp_path: Path) -> None:
    hub = DeviceHub(tmp_path)
    async with hub.running("north", "south"):
        await hub.submit(job_of())
        async with at_work(hub.supervisor()):
            await hub.ended()
        assert hub.lineages == {1: ("cuda:0 X",), 2: None, 3: None}
        notes = [event for event in await hub.events("note") if "warning" in event.data]
        assert [(event.round, event.data["warning"]) for event in notes] == [(2, WARNING)]
