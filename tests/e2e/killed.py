"""Processes of a deployment that are killed."""

from __future__ import annotations

import asyncio
import os
import signal

from hanse.embedded.deployment import Deployment


async def kill(deployment: Deployment, name: str) -> None:
    """SIGKILL a process, and wait until its successor runs."""
    supervisor = deployment.hub.supervisor
    pid = supervisor.pids()[name]
    os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(60):
        while supervisor.pids().get(name, pid) == pid:  # noqa: ASYNC110 - another process's death has no event
            await asyncio.sleep(0.01)
