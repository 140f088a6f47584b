"""Processes that outlive the command that started them, or not: each has a log and a file with its id in one folder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


def start(
    folder: Path, name: str, argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None, tied: bool = False
) -> None:
    """Starts a process in the background; `folder/name.log` has its output, `folder/name.pid` its id.

    Args:
        tied: it ends with the thread that started it, even by SIGKILL (where util-linux has setpriv).
    """
    words = [str(word) for word in argv]
    setpriv = shutil.which("setpriv")
    if tied and setpriv is not None:
        words = [setpriv, "--pdeathsig", "KILL", *words]
    with (folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            words,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
    (folder / f"{name}.pid").write_text(f"{process.pid} {_born(process.pid)}")


def running(folder: Path, name: str) -> bool:
    """Whether the process of that name runs; never mistakes another that was given the same id."""
    return _pid(folder, name) is not None


def stop(folder: Path, name: str, *, patience: float = 20) -> None:
    """SIGTERM, after `patience` seconds SIGKILL; nothing when it does not run."""
    pid = _pid(folder, name)
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        end = time.monotonic() + patience
        while _alive(pid) and time.monotonic() < end:
            time.sleep(0.05)
        if _alive(pid):
            os.kill(pid, signal.SIGKILL)
            while _alive(pid):
                time.sleep(0.05)
    (folder / f"{name}.pid").unlink(missing_ok=True)


def log_tail(folder: Path, name: str, size: int = 2000) -> str:
    """The end of a process's output, for a failure's message."""
    path = folder / f"{name}.log"
    return path.read_text(errors="replace")[-size:] if path.exists() else ""


def _pid(folder: Path, name: str) -> int | None:
    path = folder / f"{name}.pid"
    if not path.exists():
        return None
    pid, born = path.read_text().split()
    return int(pid) if _alive(int(pid)) and _born(int(pid)) == born else None


def _alive(pid: int) -> bool:
    """Whether it runs; a child of ours that ended is reaped here."""
    try:
        if os.waitpid(pid, os.WNOHANG)[0] == pid:
            return False
    except ChildProcessError:
        pass
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _born(pid: int) -> str:
    """The process's start in ticks after boot (proc(5), field 22), which tells it from a later one with its id."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return "gone"
