"""A process and all that it has started: their memory together, and their end."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path

import psutil

_LOOK_S, _WAIT_S = 0.25, 0.01


class ProcessTree:
    """The processes at and below one.

    Args:
        root: its number. It adopts what below it loses its parent, or the kernel ends all of it together.
    """

    def __init__(self, root: int) -> None:
        self._root = psutil.Process(root)
        self._members: frozenset[psutil.Process] = frozenset()
        self._looked = float("-inf")

    def members(self, *, fresh: bool = False) -> frozenset[psutil.Process]:
        """The processes that are there, as of a quarter of a second ago, or now."""
        now = time.monotonic()
        if fresh or now - self._looked >= _LOOK_S:  # a look goes through all processes of the machine
            self._members, self._looked = self._look(), now
        return self._members

    def memory(self, limit: int) -> int:
        """Bytes of memory that all of them use, without pages of files: these the system takes back when it wants, as
        it forgets pages of data larger than memory. Above `limit`, what several share is counted once."""
        members = self.members()
        used = sum(map(_held, members))
        return used if used <= limit or len(members) < 2 else sum(map(_share, members))

    async def end(self) -> None:
        """Kill all of them, and those that they start meanwhile; the root last, for it adopts them."""
        while below := self.members(fresh=True) - {self._root}:
            for each in below:
                _kill(each)
            await asyncio.sleep(_WAIT_S)
        _kill(self._root)

    def _look(self) -> frozenset[psutil.Process]:
        try:
            return frozenset({self._root, *self._root.children(recursive=True)})
        except psutil.NoSuchProcess:
            return frozenset()


def _kill(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.kill()


_HELD, _SHARED = ("RssAnon:", "RssShmem:"), ("Pss_Anon:", "Pss_Shmem:")
"""What no file stands behind. (`/dev/shm`'s files are memory.)"""


def _held(process: psutil.Process) -> int:
    """Bytes of a process."""
    try:
        return _sum(process, "status", _HELD)
    except PermissionError:
        return _resident(process)


def _share(process: psutil.Process) -> int:
    """Bytes of a process, where each page that several processes have is divided among them."""
    try:
        return _sum(process, "smaps_rollup", _SHARED)
    except PermissionError:
        return _held(process)


def _sum(process: psutil.Process, file: str, names: tuple[str, ...]) -> int:
    """Of lines of a file about a process: 0 for one that is gone, all of its memory where the system tells no more."""
    try:
        lines = Path(f"/proc/{process.pid}/{file}").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    told = [int(line.split()[1]) << 10 for line in lines if line.startswith(names)]
    return sum(told) if told else _resident(process)


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0
