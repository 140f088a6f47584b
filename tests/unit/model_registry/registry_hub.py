"""A registry with what it stands on, and models to publish in it."""

from __future__ import annotations

from pathlib import Path

from clocks import HandClock
from hanse_fabric.bus.memory import MemoryBroker, MemoryBus
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import (
    AuditEvent,
    Lineage,
    ModelVersion,
    PublishModel,
    Stage,
)
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.subjects import AUDIT
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_model_registry.registry import Registry

PROJECT = "triage"


RUN = "abcdefghijkl"


def a_model(
    number: int,
    *,
    run: str = RUN,
    content: bytes | None = None,
    parent: str | None = None,
    final: bool = False,
    best: bool = False,
) -> PublishModel:
    data = content or f"model {run} {number}".encode()
    return PublishModel(
        project=PROJECT,
        model=ref_of_bytes(data, inline=True),
        architecture={"name": "linear"},
        lineage=Lineage(
            run=run, round=number, workflow="federated_averaging", participants=("north", "south"), examples=100,
            strategy={}, seed=1, parent=parent,
        ),
        metrics={"accuracy": 0.5},
        final=final, best=best,
    )  # fmt: skip


class Hub:
    """A registry with what it stands on; `replica` adds another over the same state."""

    def __init__(self, folder: Path, keep: int = 5) -> None:
        self.broker, self.clock, self.key = MemoryBroker(), HandClock(), SigningKey.create()
        self.store = DirectoryStore(folder / "store")
        self.bus = MemoryBus(self.broker)
        self.keep = keep
        self.registry = self.replica()

    def replica(self) -> Registry:
        return Registry(MemoryBus(self.broker), self.store, self.key, self.clock, keep=self.keep)

    async def put(self, number: int, **given: object) -> ModelVersion:
        self.clock.advance(1)
        return await self.registry.publish(a_model(number, **given))  # type: ignore[arg-type]

    async def promote(self, version: int, stage: Stage = Stage.PRODUCTION) -> ModelVersion:
        self.clock.advance(1)
        return await self.registry.promote(PROJECT, version, stage, actor="key:owner", reason="better")

    async def stages(self) -> dict[int, Stage]:
        return {v.version: v.stage for v in await self.registry._ledger.all(PROJECT) if not v.deleted}

    async def audit(self) -> list[AuditEvent]:
        assert AUDIT.stream is not None
        records = await self.bus.snapshot(AUDIT.stream, AUDIT.of(project=PROJECT))
        return [AuditEvent.decode(record.data) for record in records]
