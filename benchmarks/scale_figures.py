"""What the benchmark of scale reads of processes, servers and folders."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

Pids = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Usage:
    """One look at some processes: resident MiB, and seconds of a processor since their start, by name."""

    mib: dict[str, int]
    seconds: dict[str, float]

    @classmethod
    def of(cls, pids: Pids) -> Usage:
        found = {name: psutil.Process(pid) for name, pid in pids.items()}
        times = {name: process.cpu_times() for name, process in found.items()}
        return cls(
            {name: process.memory_info().rss >> 20 for name, process in found.items()},
            {name: time.user + time.system for name, time in times.items()},
        )

    def since(self, before: Usage) -> dict[str, float]:
        """Seconds of a processor between two looks."""
        return {name: round(seconds - before.seconds[name], 2) for name, seconds in self.seconds.items()}


def most(*looks: dict[str, int]) -> dict[str, int]:
    return {name: max(look[name] for look in looks) for name in looks[0]}


def told(monitoring: str, page: str) -> dict[str, Any]:
    """A page of a nats-server's monitoring."""
    with urllib.request.urlopen(f"{monitoring}/{page}", timeout=60) as answer:  # noqa: S310 - loopback
        body: dict[str, Any] = json.load(answer)
    return body


def messages(monitoring: str) -> int:
    """What a nats-server has taken and given since its start."""
    page = told(monitoring, "varz")
    return int(page["in_msgs"]) + int(page["out_msgs"])


def consumers(monitoring: str, stream: str) -> int:
    """How many follow a stream."""
    accounts = told(monitoring, "jsz?accounts=1&streams=1")["account_details"]
    states = [
        detail["state"] for account in accounts for detail in account["stream_detail"] if detail["name"] == stream
    ]
    return sum(int(state["consumer_count"]) for state in states)


def kib(folder: Path) -> int:
    """Disk that a folder takes, in KiB, as `du` counts it."""
    size = 0
    for path in folder.rglob("*"):
        try:
            size += path.lstat().st_blocks * 512
        except FileNotFoundError:
            continue  # servers replace files
    return size >> 10
