"""A compensator on a memory bus with a project of sites."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from hanse_compensator.service import Compensator
from hanse_fabric.bus.memory import MemoryBroker, MemoryBus
from hanse_fabric.identity.sealing import SealingKey
from hanse_fabric.messages.masking import MaskAnswer, MaskRequest, MaskShape
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.store.port import ObjectStore
from hanse_fabric.subjects import MASK_ANSWER, MASK_REQUEST, MASKS, PARTICIPANTS
from masked_sites import MaskedSite, mask_request, masked_sites
from memory_disk import tmp_path, tmp_path_factory

__all__ = ["tmp_path", "tmp_path_factory"]

PATIENCE_S = 60
Running = Callable[..., AbstractAsyncContextManager[None]]


@dataclass
class Project:
    """Sites of project `triage`, and what the coordinator does."""

    store: ObjectStore
    bus: MemoryBus = field(default_factory=lambda: MemoryBus(MemoryBroker()))
    key: SealingKey = field(default_factory=SealingKey.create)
    sites: list[MaskedSite] = field(default_factory=lambda: masked_sites("triage", 4))

    async def enrol(self, *sites: MaskedSite, revoked: bool = False) -> None:
        for site in sites:
            subject = PARTICIPANTS.of(project="triage", participant=site.name)
            await self.bus.publish(subject, site.record(revoked=revoked).encode())

    def request(self, sites: list[MaskedSite] | None = None, **seal: Any) -> MaskRequest:
        members = [site.sealed(self.key.public_bytes, **seal) for site in (self.sites if sites is None else sites)]
        return mask_request("triage", members, **{name: seal[name] for name in ("run", "session") if name in seal})

    async def ask(self, request: MaskRequest) -> MaskAnswer:
        """Publish a request, and wait for an answer that is newer."""
        tokens = {"project": request.project, "run": request.run, "session": request.session}
        subject = MASK_ANSWER.of(**tokens)
        known = await self.bus.last(MASK_ANSWER.stream, subject)
        await self.bus.publish(MASK_REQUEST.of(**tokens), request.encode())
        async with asyncio.timeout(PATIENCE_S):
            after = known.sequence if known else 0
            async with self.bus.follow(MASK_ANSWER.stream, subject, after=after) as records:
                return MaskAnswer.decode((await anext(records)).data)

    async def small(self, request: MaskRequest, digest: str) -> bytes | None:
        subject = MASKS.of(project=request.project, run=request.run, session=request.session, digest=digest)
        record = await self.bus.last(MASKS.stream, subject)
        return None if record is None else record.data

    @asynccontextmanager
    async def running(self, **options: Any) -> AsyncIterator[None]:
        """A compensator at work; stopped in order at the end."""
        stopping = asyncio.Event()
        bus = options.pop("bus", self.bus)
        store = options.pop("store", self.store)
        work = asyncio.create_task(Compensator(bus, store, self.key, **options).run(stopping))
        try:
            yield
        finally:
            stopping.set()
            async with asyncio.timeout(PATIENCE_S):
                await work


@pytest.fixture
async def triage(tmp_path) -> Project:
    project = Project(DirectoryStore(tmp_path / "store"))
    await project.enrol(*project.sites)
    return project


@pytest.fixture
def inline() -> MaskShape:
    """Fits on the bus."""
    return MaskShape(u64=11, u32=1001)


@pytest.fixture
def stored() -> MaskShape:
    """Two leaves and a bit, with a boundary inside the 64-bit elements."""
    return MaskShape(u64=(1 << 20) + 3, u32=(2 << 20) + 7)
