"""A worker that was forked before the agent began (`process.nursery`), as the agent sees other workers."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Forked:
    """A child of this process, and the pipes to and from it."""

    pid: int
    asking: int
    answering: int


_prepared: list[Forked] = []


def prepare(forked: Forked) -> None:
    """Have the first worker that this process starts be this one."""
    _prepared.append(forked)


async def take_prepared() -> AdoptedProcess | None:
    """The worker that was forked before, once; None where there is none."""
    return await AdoptedProcess.of(_prepared.pop()) if _prepared else None


class AdoptedProcess:
    """What is used of `asyncio.subprocess.Process`, for a child that asyncio has not started.

    Attributes:
        stdin: bytes that are written to it go to the child.
    """

    def __init__(self, pid: int, stdin: asyncio.WriteTransport, stdout: asyncio.StreamReader) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self.returncode: int | None = None
        self._ended = asyncio.Event()
        self._watched = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._watched, self._reap)

    @classmethod
    async def of(cls, forked: Forked) -> AdoptedProcess:
        loop, stdout = asyncio.get_running_loop(), asyncio.StreamReader()
        stdin, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(forked.asking, "wb", 0))
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdout), os.fdopen(forked.answering, "rb", 0))
        return cls(forked.pid, stdin, stdout)

    async def wait(self) -> int:
        """Its exit status, negative for a signal's number, when it has ended."""
        await self._ended.wait()
        return -signal.SIGKILL if self.returncode is None else self.returncode

    def kill(self) -> None:
        """End it. It is this process's child, so its number is nobody else's until it is reaped."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._watched)
        os.close(self._watched)
        _, status = os.waitpid(self.pid, 0)
        self.returncode = os.waitstatus_to_exitcode(status)
        self.stdin.close()
        self._ended.set()
