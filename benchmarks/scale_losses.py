"""What the benchmark of scale does to the bus: a leaf node is lost, and a server of the hub."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scale_figures import told

if TYPE_CHECKING:
    from scale import Watched

PATIENCE_S = 1800.0
_FILES_BESIDE = 500
"""What a process of the benchmark has open beside its sites' connections, at most."""


def raise_open_files(participants: int, leaves: int, regions: int) -> None:
    """Have this process, and those that it starts, open as many files as the system allows.

    Raises:
        SystemExit: they are too few for the sites of a region of which a leaf node is lost.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    others = leaves // regions - 1
    needed = -(-participants // regions // others) + _FILES_BESIDE
    if most != resource.RLIM_INFINITY and most < needed:
        raise SystemExit(
            f"open files: a leaf node would have {needed} when another of its region is lost, and the system allows "
            f"{most}: raise the hard limit (ulimit -Hn), or give more --leaves"
        )


async def lose_a_leaf(watched: Watched, tell: Callable[[str], None]) -> dict[str, Any]:
    """Kill one leaf node and wait until all its sites are at others of their region."""
    lost, attempts, away, back = watched.leaves[0], Counter[int](), 1, 0
    for leaf in watched.leaves:
        await leaf.connecting()
    there = int((await asyncio.to_thread(told, lost.monitoring, "varz"))["connections"])
    begun = time.monotonic()
    await lost.kill()
    async with asyncio.timeout(PATIENCE_S):
        while away or back < there:
            await asyncio.sleep(0.1)
            seen = [await leaf.connecting() for leaf in watched.leaves]
            away = sum(one["away"] for one in seen)
            back += sum(one["back"] for one in seen)
            for one in seen:
                attempts.update({int(second): count for second, count in one["attempts"].items()})
    seconds = time.monotonic() - begun
    await lost.start_again()
    tell(f"{there} sites of a lost leaf node at others in {seconds:.0f} s; attempts by the second: {dict(attempts)}")
    return {
        "reconnect_sites": there, "reconnect_s": round(seconds, 1), "connect_attempts": attempts.total(),
        "connect_attempts_per_s_peak": max(attempts.values(), default=0),
    }  # fmt: skip


async def lose_a_server(watched: Watched, tell: Callable[[str], None]) -> dict[str, Any]:
    """Kill the server of the hub at which most leaf nodes are, and wait until every site's request is answered; the
    same before it, for comparison. It is started again at once, as in a cluster."""
    calm = await _all_answered(watched)
    for leaf in watched.leaves:
        await leaf.connecting()
    servers = watched.bus_servers()
    linked = {name: (await asyncio.to_thread(told, page, "varz"))["leafnodes"] for name, (_, page) in servers.items()}
    name = max(linked, key=lambda each: int(linked[each]))
    os.kill(servers[name][0], signal.SIGKILL)
    seconds = await _all_answered(watched)
    gone = sum([(await leaf.connecting())["back"] for leaf in watched.leaves])
    tell(f"{name} killed, with connections of leaf nodes: all answered in {seconds:.0f} s (before: {calm:.0f} s)")
    return {
        "all_answered_s": round(calm, 1), "server_lost_s": round(seconds, 1), "server_lost_leafnodes": linked[name],
        "server_lost_reconnected_sites": gone,
    }  # fmt: skip


async def _all_answered(watched: Watched) -> float:
    """Seconds until a sign of life of each site was confirmed."""
    begun = time.monotonic()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(leaf.alive() for leaf in watched.leaves))
    return time.monotonic() - begun
