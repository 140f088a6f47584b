"""The console, put together: the built pages, and the hub's API under /v1 on the same origin."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from contextlib import AsyncExitStack

from aiohttp import web

from hanse_console.bundle import File, read_bundle
from hanse_console.headers import OVER_TLS, SECURITY
from hanse_console.proxy import BODY, METHODS, ApiProxy
from hanse_console.settings import ConsoleSettings
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.http_door import DoorRunner, listen
from hanse_fabric.networks import networks_of
from hanse_fabric.service import Service, served_by

_LOG = logging.getLogger(__name__)
_SHUTDOWN_S = 2.0
_CONNECTIONS, _FIRST_S = 2048, 10.0
"""Open at once, and seconds from a connection to its first whole request: `hanse_fabric.http_door`."""


def application(files: Mapping[str, File], proxy: ApiProxy, hub: str, *, over_tls: bool = False) -> web.Application:
    """The pages and the way to the hub.

    Args:
        hub: address by which sites and programs reach the hub: pages write it into commands for them.
    """
    app = web.Application(client_max_size=BODY)
    refused = SECURITY | OVER_TLS if over_tls else SECURITY

    async def guard(_request: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(refused)

    async def page(request: web.Request) -> web.StreamResponse:
        found = files.get("/index.html" if request.path == "/" else request.path)
        if found is None:
            raise web.HTTPNotFound(text="There is no such page. The console begins at /")
        return found.answer(request)

    async def about(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"hub": hub}, headers={"Cache-Control": "no-cache"})

    app.on_response_prepare.append(guard)
    for method in METHODS:
        app.router.add_route(method, "/v1/{rest:.*}", proxy.pass_on)
    app.router.add_get("/console.json", about)
    app.router.add_get("/{path:.*}", page)
    return app


async def serve(service: Service[ConsoleSettings]) -> None:
    """Run the console until the service is told to stop.

    Raises:
        HanseError: UNAVAILABLE when the address is taken; INVALID_INPUT for a CA that cannot be read.
    """
    settings = service.settings
    files = await asyncio.to_thread(read_bundle)
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(ApiProxy(
            settings.console_hub, _context(settings), settings.console_requests, service.clock,
            networks_of(settings.console_proxies), settings.proxy_secret.get_secret_value(),
        ))  # fmt: skip
        service.add_check("hub", proxy.answers)
        shown = settings.console_hub_public or settings.console_hub
        app = application(files, proxy, shown, over_tls=settings.tls_cert is not None)
        runner = behind_door(app, served_by(settings))
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        port = await listen(runner, settings.console_host, settings.console_port, settings="HANSE_CONSOLE")
        _LOG.info("the console listens", extra={"address": f"{settings.console_host}:{port}"})
        service.set_ready()
        await service.stopping.wait()


def behind_door(app: web.Application, context: ssl.SSLContext | None = None) -> DoorRunner:
    """The application as the network has it: nobody holds its connections."""
    return DoorRunner(app, most=_CONNECTIONS, first_s=_FIRST_S, tls=context, shutdown_timeout=_SHUTDOWN_S)


def _context(settings: ConsoleSettings) -> ssl.SSLContext | None:
    if not settings.console_hub.startswith("https:"):
        return None
    try:
        return ssl.create_default_context(cafile=settings.console_hub_ca)
    except (OSError, ssl.SSLError) as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"HANSE_CONSOLE_HUB_CA: {settings.console_hub_ca}: {error}") from None
