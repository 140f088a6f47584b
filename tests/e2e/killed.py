"""Processes of a deployment that are killed."""

from __future__ import annotations

import asyncio
import os
import signal

from hanse.embedded.deployment import Deployment
from hanse.embedded.hub import EmbeddedHub
from hanse.embedded.nursery import SERVICES, Nursery


async def restart_as_programs(hub: EmbeddedHub) -> None:
    """What has started was forked, which is cheap; services that end from now on start again as in a container: each
    time a program of its own, which orders what it hashes anew. (Of sites, test_nursery_run.py has one.)"""
    await restart_in(hub, None)


async def restart_in(hub: EmbeddedHub, others: Nursery | None) -> None:
    """Services that end from now on start again in another nursery, one that orders what it hashes otherwise than the
    first. Where there is none, they are programs."""
    for child, _ in hub.supervisor._children:
        await child.wait_ready(60)
        if not SERVICES.modules.isdisjoint(child.spec.argv):
            child._nursery = others


async def kill(deployment: Deployment, name: str) -> None:
    """SIGKILL a process, and wait until its successor runs."""
    await kill_of(deployment.hub, name)


async def kill_of(hub: EmbeddedHub, name: str) -> None:
    """The same, of a hub whose sites are the test's own."""
    pid = hub.supervisor.pids()[name]
    os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(60):
        while hub.supervisor.pids().get(name, pid) == pid:  # noqa: ASYNC110 - another process's death has no event
            await asyncio.sleep(0.01)
