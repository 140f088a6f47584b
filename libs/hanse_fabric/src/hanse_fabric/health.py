"""`/healthz` (alive), `/readyz` (ready to work, else 503 with what is missing) and `/metrics` (Prometheus)."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.errors import HanseError
from hanse_fabric.telemetry.catalogue import RESIDENT, STARTED
from hanse_fabric.telemetry.metrics import prometheus_text

if TYPE_CHECKING:
    from aiohttp import web

Missing = Callable[[], Awaitable[dict[str, str]]]
"""Tells what is not ready, by name; empty when all is."""


class HealthServer:
    """The HTTP server of one process's health."""

    def __init__(self, missing: Missing, clock: Clock = SYSTEM_CLOCK) -> None:
        self._missing, self._clock = missing, clock
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self, host: str, port: int, context: ssl.SSLContext | None = None) -> None:
        """Listen.

        Raises:
            HanseError: UNAVAILABLE when the address is taken or not this machine's.
        """
        from aiohttp import web

        from hanse_fabric.http_door import listen

        app = web.Application()
        app.add_routes(
            [web.get("/healthz", _alive), web.get("/readyz", self._ready), web.get("/metrics", self._metrics)]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        try:
            self.port = await listen(self._runner, host, port, settings="HANSE_HEALTH", context=context)
        except HanseError:
            await self.stop()
            raise
        STARTED.set(self._clock.now().timestamp())

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _ready(self, _request: web.Request) -> web.Response:
        from aiohttp import web

        missing = await self._missing()
        return web.json_response({"ready": not missing, "missing": missing}, status=503 if missing else 200)

    async def _metrics(self, _request: web.Request) -> web.Response:
        from aiohttp import web

        await self._missing()  # whether all is well is among the metrics
        RESIDENT.set(resident_bytes())
        return web.Response(body=prometheus_text().encode(), content_type="text/plain", charset="utf-8")


async def _alive(_request: web.Request) -> web.Response:
    from aiohttp import web

    return web.json_response({"alive": True})


def resident_bytes() -> int:
    """Resident memory of this process in bytes; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    import resource

    return pages * resource.getpagesize()
