"""Opening the window for as long as the datapod runs."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path

from aiohttp import web

from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.window.app import Window
from hanse_datapod.window.links import announce, forget, make_link
from hanse_datapod.window.place import place_of
from hanse_datapod.window.site import WindowSite
from hanse_fabric.clock import Clock
from hanse_fabric.errors import HanseError

_SHUTDOWN_S = 1.0
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
    names = [home.name for home in homes]
    sites = {
        home.name if names.count(home.name) == 1 else str(home): WindowSite(home, policy, code, clock) for home in homes
    }
    runner = web.AppRunner(Window(sites, clock).application(), access_log=None, shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    try:
        try:
            await _open(runner, place, homes, clock)
        except (OSError, HanseError) as error:
            _log.error("the site has no window", extra={"address": setting, "reason": str(error)})
        yield
    finally:
        await runner.cleanup()
        for home in homes:
            await asyncio.to_thread(forget, home)


async def _open(runner: web.AppRunner, place: tuple[str, int], homes: Sequence[Path], clock: Clock) -> None:
    host, port = place
    await web.TCPSite(runner, host, port).start()
    address = f"http://{_from_here(host)}:{runner.addresses[0][1]}"
    for home in homes:
        await asyncio.to_thread(announce, home, address)
    _log.info("the site's window is open", extra={"address": address, "enter": "hanse site window --home DIR"})
    if sys.stderr.isatty():
        link = await asyncio.to_thread(make_link, homes[0], address, clock)
        print(f"The site's window, by this link once: {link}", file=sys.stderr)


def _from_here(host: str) -> str:
    """As a browser on this machine reaches it."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if address.is_unspecified:
        return "127.0.0.1"
    return f"[{host}]" if address.version == 6 else host
