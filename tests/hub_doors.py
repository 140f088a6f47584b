"""The true doors of a hub whose other parts a test plays: what it publishes as a task is told to its site."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from hanse_aggregator.doors import AggregatorDoors
from hanse_coordinator.authority import NoCredentials
from hanse_coordinator.doors import SiteDoors, mark_of
from hanse_fabric.bus.port import Bus
from hanse_fabric.doors.serving import Enrolled
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import ParticipantRecord
from hanse_fabric.records import Bucket
from hanse_fabric.subjects import PARTICIPANTS, TASK, TASK_MARK, TELL


class Known(Enrolled):
    """Participants of any project, by name, with the keys that the test gives; without any: those on the bus."""

    def __init__(self, bus: Bus, keys: Mapping[str, bytes] | None = None) -> None:
        super().__init__(bus)
        self._keys = keys

    async def watch(self) -> None:
        await (asyncio.Event().wait() if self._keys is not None else super().watch())

    async def require(self, project: str, participant: str) -> ParticipantRecord:
        if self._keys is None:
            return await super().require(project, participant)
        if participant not in self._keys:
            raise HanseError(ErrorCode.FORBIDDEN, f"participant: {participant} is not enrolled")
        key = base64.b64encode(self._keys[participant])
        return ParticipantRecord(
            project=project, participant=participant, public_key=key, bus_key="U", enrolled_at=datetime.now(UTC)
        )


class ByHand:
    """A handler of (subject, request) in the place of the server of links."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler

    async def answer_at_door(self, request: Any) -> bytes:
        return bytes(await self._handler("", request.content))


class NoLinks:
    """Where nothing is in the store."""

    async def answer_at_door(self, _: Any) -> bytes:
        raise HanseError(ErrorCode.FORBIDDEN, "this hub gives no links")


@asynccontextmanager
async def hub_doors(
    coordinator: Bus,
    aggregator: Bus | None = None,
    *,
    keys: Mapping[str, bytes] | None = None,
    credentials: Any = None,
    links: Any = None,
    results: int = 0,
) -> AsyncIterator[None]:
    """Serve a hub's doors, and tell sites of their tasks, while inside.

    Args:
        aggregator: its connection; None: the coordinator's, where a bus asks nobody for rights.
        keys: raw Ed25519 keys by participant; None: the records on the bus.
        results: bytes of answers to one project's open steps; 0: any.
    """
    sums = aggregator or coordinator
    async with (
        coordinator_doors(coordinator, keys=keys, credentials=credentials, links=links, results=results),
        while_running(AggregatorDoors(sums, Known(sums, keys)).run()),
    ):
        yield


@asynccontextmanager
async def coordinator_doors(
    bus: Bus,
    *,
    keys: Mapping[str, bytes] | None = None,
    credentials: Any = None,
    links: Any = None,
    results: int = 0,
) -> AsyncIterator[None]:
    """The coordinator's part of them."""
    doors = SiteDoors(
        bus, links=links or NoLinks(), credentials=credentials or NoCredentials(), instance="test",
        enrolled=Known(bus, keys), results=results,
    )  # fmt: skip
    async with while_running(doors.run()), while_running(_tell(bus)):
        yield


@asynccontextmanager
async def while_running(work: Coroutine[Any, Any, Any]) -> AsyncIterator[None]:
    """A task beside what is done inside; its failure is raised there."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        if task.done():
            task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def take_in(
    bus: Bus, *names: str, project: str, run: str, step: str, region: str | None = None
) -> dict[str, SigningKey]:
    """Enrol participants with keys of their own, and open a step for them."""
    bucket = Bucket(bus, PARTICIPANTS, ParticipantRecord)
    found: dict[str, SigningKey] = {}
    for name in names:
        key = found[name] = SigningKey.create()
        public = base64.b64encode(key.public_bytes)
        record = ParticipantRecord(
            project=project, participant=name, public_key=public, bus_key="U", enrolled_at=datetime.now(UTC),
            region=region,
        )  # fmt: skip
        await bucket.create(record, project=project, participant=name)
        await bus.publish(TASK.of(project=project, participant=name, run=run, step=step), b"open")
    return found


async def _tell(bus: Bus) -> None:
    assert TASK.stream is not None
    async with bus.follow(TASK.stream, TASK.wildcard()) as records:
        async for record in records:
            where = TASK.parse(record.subject)
            told = {TASK_MARK: mark_of(record.subject, record.sequence)}
            subject = TELL.of(region="hub", project=where["project"], participant=where["participant"])
            await bus.tell(subject, record.data, headers={**record.headers, **told})
