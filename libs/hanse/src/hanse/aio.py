"""The hub for asyncio: the same methods as `hanse.hub`, as coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from hanse import calls
from hanse.hub import read_job
from hanse.transport import AsyncTransport, metrics_table
from hanse.views import Event, ModelView, ParticipantView, ProjectView, RunView
from hanse_fabric.job import Job


class AsyncHub:
    """A connection to a hub. Use it as an asynchronous context manager."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def info(self) -> dict[str, Any]:
        return await self._transport.send(calls.hub())

    async def create_project(self, name: str, *, schema: Mapping[str, Any], description: str = "") -> AsyncProject:
        view = await self._transport.send(calls.create_project(name, schema, description))
        return AsyncProject(self._transport, view.name)

    async def project(self, name: str) -> AsyncProject:
        return AsyncProject(self._transport, (await self._transport.send(calls.project(name))).name)

    async def projects(self) -> list[ProjectView]:
        return await self._transport.send(calls.projects())

    async def close(self) -> None:
        await self._transport.close()

    async def __aenter__(self) -> AsyncHub:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncProject:
    """One project."""

    def __init__(self, transport: AsyncTransport, name: str) -> None:
        self._transport = transport
        self.name = name

    async def invite(self, participant: str, *, expires_in: float | None = None) -> str:
        return (await self._transport.send(calls.invite(self.name, participant, expires_in))).token

    async def participants(self) -> list[ParticipantView]:
        return await self._transport.send(calls.participants(self.name))

    async def revoke(self, participant: str) -> None:
        await self._transport.send(calls.revoke(self.name, participant))

    async def run(self, job: str | Path | Mapping[str, Any] | Job) -> AsyncRun:
        body = await asyncio.to_thread(read_job, job)
        return AsyncRun(self._transport, await self._transport.send(calls.submit(self.name, body)))

    async def models(self) -> list[ModelView]:
        return await self._transport.send(calls.models(self.name))

    async def audit(self) -> list[dict[str, Any]]:
        return await self._transport.send(calls.audit(self.name))


class AsyncRun:
    """One run."""

    def __init__(self, transport: AsyncTransport, view: RunView) -> None:
        self._transport = transport
        self.view = view

    @property
    def id(self) -> str:
        return self.view.run

    @property
    def state(self) -> str:
        return self.view.state

    async def refresh(self) -> AsyncRun:
        self.view = await self._transport.send(calls.run(self.view.project, self.id))
        return self

    async def watch(self, *, after: int = 0) -> AsyncIterator[Event]:
        """The run's events, live, until it has ended."""
        path = f"/v1/projects/{self.view.project}/runs/{self.id}/events"
        async for event in self._transport.events(path, after=after):
            yield event
        await self.refresh()

    async def wait(self) -> AsyncRun:
        async for _ in self.watch():
            pass
        return self

    async def steer(self, action: str) -> AsyncRun:
        """`pause`, `resume` or `cancel`."""
        self.view = await self._transport.send(calls.steer(self.view.project, self.id, action))
        return self

    async def metrics(self) -> Any:
        """Metrics by round, as a pandas DataFrame."""
        return metrics_table(await self._transport.send(calls.metrics(self.view.project, self.id)))
