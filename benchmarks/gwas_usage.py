"""What processes take while something runs: processor time, peak memory, bytes on their connections, by role."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

_EVERY = 0.5
_PID = re.compile(r"pid=(\d+)")
_SENT, _RECEIVED = re.compile(r"bytes_sent:(\d+)"), re.compile(r"bytes_received:(\d+)")


def tree(pid: int) -> list[psutil.Process]:
    """A process and all below it."""
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and all that it has started, those that have ended included."""
    total = 0.0
    for process in tree(pid):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue  # its parent counts it from now on
        total += times.user + times.system + times.children_user + times.children_system
    return total


@dataclass
class Usage:
    """Measures from its entry to its exit.

    Args:
        roles: process ids by role.

    Attributes:
        cpu_s: by role, of processes and what they started.
        peak_mib: by role: the largest of its processes, each with those that it started, by the kernel's high-water
            marks added up, which may have been reached at different times.
        sent, received: by role, bytes on TCP connections; connections shorter than half a second may be missed.
    """

    roles: Mapping[str, list[int]]
    cpu_s: dict[str, float] = field(default_factory=dict)
    peak_mib: dict[str, float] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)

    async def __aenter__(self) -> Self:
        self._marks: dict[int, dict[int, float]] = {}
        self._before = {role: sum(map(cpu_seconds, pids)) for role, pids in self.roles.items()}
        self._first = _connections()
        self._last = dict(self._first)
        self._sampler = asyncio.create_task(self._sample())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sampler.cancel()
        await asyncio.wait({self._sampler})
        self._look()
        for role, pids in self.roles.items():
            self.cpu_s[role] = sum(map(cpu_seconds, pids)) - self._before[role]
            self.peak_mib[role] = max(sum(self._marks.get(pid, {}).values()) for pid in pids)
            own = {process.pid for pid in pids for process in tree(pid)}
            counted = [(key, value) for key, value in self._last.items() if key[0] in own]
            self.sent[role] = sum(sent - self._first.get(key, (0, 0))[0] for key, (sent, _) in counted)
            self.received[role] = sum(got - self._first.get(key, (0, 0))[1] for key, (_, got) in counted)

    async def _sample(self) -> None:
        while True:
            await asyncio.to_thread(self._look)
            await asyncio.sleep(_EVERY)

    def _look(self) -> None:
        for pids in self.roles.values():
            for top in pids:
                marks = self._marks.setdefault(top, {})
                for process in tree(top):
                    marks[process.pid] = max(marks.get(process.pid, 0.0), _high_water_mib(process.pid))
        for key, value in _connections().items():
            self._last[key] = value


def _high_water_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0) / 1024


def _connections() -> dict[tuple[int, str, str], tuple[int, int]]:
    """Bytes sent and received by process and ends of the connection, as the kernel counts them; empty without `ss`."""
    program = shutil.which("ss")
    if program is None:
        return {}
    text = subprocess.run([program, "-HtinpO"], check=False, capture_output=True, text=True).stdout
    found = {}
    for line in text.splitlines():
        pid, words = _PID.search(line), line.split()
        if pid is None or len(words) < 5:
            continue
        sent, received = _SENT.search(line), _RECEIVED.search(line)
        counts = (int(sent[1]) if sent else 0, int(received[1]) if received else 0)
        found[int(pid[1]), words[3], words[4]] = counts
    return found
