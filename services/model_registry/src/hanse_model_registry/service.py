"""The registry on the bus: answers PUBLISH_MODEL and REGISTRY, and sweeps projects some time after a publication."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta

from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages import PublishModel, RegistryReply, RegistryRequest
from hanse_fabric.subjects import PUBLISH_MODEL, REGISTRY, Subject
from hanse_fabric.telemetry import span
from hanse_model_registry.registry import Registry

GROUP = "model-registry"
Answer = Callable[[bytes, str], Awaitable[RegistryReply]]
log = logging.getLogger(__name__)


class RegistryService:
    """Serves a registry until told to stop.

    Args:
        sweep_after: seconds from a publication to the sweep of its project.
        link_for: how long download links are valid.
    """

    def __init__(self, bus: Bus, registry: Registry, clock: Clock, *, sweep_after: float, link_for: timedelta) -> None:
        self._bus, self._registry, self._clock = bus, registry, clock
        self._sweep_after, self._link_for = sweep_after, link_for
        self._touched: set[str] = set()
        self._wake = asyncio.Event()

    async def run(self, stopping: asyncio.Event, *, on_ready: Callable[[], None] | None = None) -> None:
        """Answer requests until `stopping` is set."""
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            for subject, answer in ((PUBLISH_MODEL, self._publish), (REGISTRY, self._request)):
                serving = await self._bus.serve(subject.wildcard(), _handler(subject, answer), group=GROUP)
                stack.push_async_callback(serving.stop)
            sweeper = group.create_task(self._sweep(), name="sweep")
            if on_ready is not None:
                on_ready()
            await stopping.wait()
            sweeper.cancel()

    async def _publish(self, data: bytes, project: str) -> RegistryReply:
        request = PublishModel.decode(data)
        _same(project, request.project)
        version = await self._registry.publish(request)
        self._touch(project)
        return RegistryReply(version=version)

    async def _request(self, data: bytes, project: str) -> RegistryReply:
        request = RegistryRequest.decode(data)
        _same(project, request.project)
        why = {"actor": request.actor, "reason": request.reason}
        match request.action:
            case "rollback":
                return RegistryReply(version=await self._registry.rollback(project, **why))
            case "sign":
                if request.output is None:
                    raise invalid("output", None, "the output to sign")
                _same(project, request.output.project)
                return RegistryReply(output=await self._registry.outputs.sign(request.output, actor=request.actor))
            case "link":
                version, url = await self._registry.link(project, _number(request), self._link_for)
                return RegistryReply(version=version, url=url)
            case "delete":
                return RegistryReply(version=await self._registry.delete(project, _number(request), **why))
            case "promote":
                number = _number(request)
                if request.stage is None:
                    raise invalid("stage", None, "candidate, staging, production or archived")
                promoted = await self._registry.promote(project, number, request.stage, **why)
                self._touch(project)
                return RegistryReply(version=promoted)
            case unknown:
                raise invalid("action", unknown, "promote, rollback, delete, link or sign")

    def _touch(self, project: str) -> None:
        self._touched.add(project)
        self._wake.set()

    async def _sweep(self) -> None:
        """Retention is not on the way of a round: it runs later, once for many publications."""
        while True:
            await self._wake.wait()
            await self._clock.sleep(self._sweep_after)
            self._wake.clear()
            projects, self._touched = sorted(self._touched), set()
            for project in projects:
                try:
                    await self._registry.sweep(project)
                except HanseError as error:
                    log.warning("retention is tried again later", extra={"project": project, "reason": error.message})
                    self._touch(project)


def _number(request: RegistryRequest) -> int:
    if request.version is None:
        raise invalid("version", None, f"the number of the version to {request.action}")
    return request.version


def _handler(subject: Subject, answer: Answer) -> Callable[[str, bytes], Awaitable[bytes]]:
    async def handle(name: str, data: bytes) -> bytes:
        project = subject.parse(name)["project"]
        with span(subject.pattern.split(".")[3], project=project):
            try:
                return (await answer(data, project)).encode()
            except HanseError as error:
                if error.code in (ErrorCode.UNAVAILABLE, ErrorCode.INTERNAL):
                    log.warning("request failed", extra={"project": project, "reason": error.message})
                return RegistryReply(code=error.code.code, message=str(error)).encode()

    return handle


def _same(subject: str, body: str) -> None:
    if subject != body:
        raise invalid("project", body, f"the project of the request's subject, {subject}")
