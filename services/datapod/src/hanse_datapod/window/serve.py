"""Opening the window for as long as the datapod runs."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from ipaddress import ip_address
from pathlib import Path

from aiohttp import web

from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.window.app import Window
from hanse_datapod.window.links import announcement, make_link
from hanse_datapod.window.place import place_of
from hanse_datapod.window.site import WindowSite
from hanse_fabric.clock import Clock
from hanse_fabric.errors import HanseError
from hanse_fabric.http_door import DoorRunner

_SHUTDOWN_S = 1.0
# Every user of the machine reaches the port, and may have so many of the datapod's descriptors, for so long. A browser
# opens six connections. The backlog is how many are accepted before the first of them can be refused.
_CONNECTIONS, _BACKLOG = 32, 8
_FIRST_S, _IDLE_S, _LINGER_S = 10.0, 30.0, 1.0
_log = logging.getLogger(__name__)


@asynccontextmanager
async def window(
    setting: str, homes: Sequence[Path], policy: Policy, code: Path | None, clock: Clock
) -> AsyncIterator[None]:
    """The window of these homes is open inside. One that cannot be opened keeps no site from its work.

    Args:
        setting: where it is (`place_of`).
        code: the site's `--code`.
    """
    place = place_of(setting)
    if place is None:
        yield
        return
    async with AsyncExitStack() as closing:
        try:
            await _open(closing, place, homes, policy, code, clock)
        except (OSError, HanseError) as error:
            _log.error("the site has no window", extra={"address": setting, "reason": str(error)})
        yield


async def _open(
    closing: AsyncExitStack, place: tuple[str, int], homes: Sequence[Path], policy: Policy, code: Path | None,
    clock: Clock,
) -> None:  # fmt: skip
    # Whatever was announced before is forgotten before a port is asked for, which another may have by now; and this
    # window's address is forgotten before its port is free again.
    claims = ExitStack()
    closing.push_async_callback(asyncio.to_thread, claims.close)
    claimed = await asyncio.to_thread(_claim, claims, homes)
    names = [home.name for home in homes]
    sites = {
        home.name if names.count(home.name) == 1 else str(home): WindowSite(home, policy, code, clock)
        for home in claimed
    }  # fmt: skip
    runner = DoorRunner(
        Window(sites, clock).application(), most=_CONNECTIONS, first_s=_FIRST_S, idle_s=_IDLE_S, linger_s=_LINGER_S,
        shutdown_timeout=_SHUTDOWN_S,
    )  # fmt: skip
    await runner.setup()
    closing.push_async_callback(runner.cleanup)
    closing.push_async_callback(asyncio.to_thread, claims.close)
    host, port = place
    await web.TCPSite(runner, host, port, backlog=_BACKLOG).start()
    listening: tuple[str, int] = runner.addresses[0]
    address = f"http://{_from_here(listening[0])}:{listening[1]}"
    for announce in claimed.values():
        await asyncio.to_thread(announce, address)
    _log.info("the site's window is open", extra={"address": address, "enter": "hanse site window --home DIR"})
    if sys.stderr.isatty():
        link = await asyncio.to_thread(make_link, list(claimed), address, clock)
        print(f"The site's window, by this link once: {link}", file=sys.stderr)


def _claim(claims: ExitStack, homes: Sequence[Path]) -> dict[Path, Callable[[str], None]]:
    """Those homes that no other process has a window of, each with what announces this one."""
    claimed, failed = {}, None
    for home in homes:
        try:
            claimed[home] = claims.enter_context(announcement(home))
        except (OSError, HanseError) as error:
            _log.error("a home is not in the window", extra={"home": str(home), "reason": str(error)})
            failed = error
    if failed is not None and not claimed:
        raise failed
    return claimed


def _from_here(host: str) -> str:
    """As a browser on this machine reaches it."""
    address = ip_address(host)
    if address.is_unspecified:
        return "127.0.0.1"
    return f"[{host}]" if address.version == 6 else host
