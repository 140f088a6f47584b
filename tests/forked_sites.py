"""Sites of a session's tests, each forked with its worker from one process that has loaded their code once.

It saves each of them some 4 s of a core. Folder, environment, arguments, log and network are the site's own, as they
are of `python -m hanse_datapod run` and of `hanse site run`, with which other tests start the same sites. The file is
the program of that one process, too: it is `hanse_datapod.process.nursery`, which knows a test's machines.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hanse.embedded.nursery import DATAPODS
from hanse_datapod.process import nursery
from hanse_fabric import forking

_CLONE_NEWNET = 0x40000000


class ForkedSite:
    """A site's process while it runs, as `subprocess.Popen` has it."""

    def __init__(self, line: socket.socket, words: Sequence[str]) -> None:
        self._line, self._words = line, words
        self._answers = line.makefile()
        self.pid = self._told()["pid"]
        assert self.pid, f"another environment of Python's own: {words}"
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit status; None where it still runs."""
        try:
            return self.wait(0.001)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float) -> int:
        """Its exit status when it has ended."""
        if self.returncode is None:
            self._line.settimeout(timeout)
            try:
                self.returncode = int(self._told()["status"])
            except TimeoutError:
                self._answers = self._line.makefile()  # one that has timed out reads nothing more
                raise subprocess.TimeoutExpired(list(self._words), timeout) from None
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def _told(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self._answers.readline())
        return told


@contextmanager
def running(
    words: Sequence[str], at: Path, *, cwd: Path, env: Mapping[str, str], log: Path, network: str = ""
) -> Iterator[ForkedSite]:
    """A site that is at work inside; whoever leaves has told it to end, else it is killed.

    Args:
        words: as after `python -m`, or those of `hanse site run`.
        at: the socket of the process that sites are forked from.
        network: the name of the network namespace that it runs in (`ip netns`); empty: this process's.
    """
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(at))
        line.settimeout(60)
        own = {name: value for name, value in env.items() if not name.startswith("PYTHON")}
        python = {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}
        order = {
            "name": "site", "argv": list(words), "folder": str(cwd), "log": str(log), "network": network,
            "environment": own | python | {**DATAPODS.environment},
        }  # fmt: skip
        line.sendall(json.dumps(order).encode() + b"\n")
        yield ForkedSite(line, words)


def enter(network: str) -> None:
    """Have this thread be on another machine, as `ip netns exec` does."""
    with (Path("/run/netns") / network).open() as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns", network)


def _site(asked: forking.Order) -> int:
    if asked.get("network"):
        enter(asked["network"])
    if asked["argv"][0] == "hanse":
        asked = asked | {"argv": _as_datapod(asked["argv"])}
    return nursery._site(asked)


def _as_datapod(words: list[str]) -> list[str]:
    """What `hanse site run` goes on as."""
    from hanse import cli

    execv, os.execv, sys.argv = os.execv, _become, words  # type: ignore[assignment]
    try:
        cli.main()
    except _Other as other:
        return other.words
    finally:
        os.execv = execv
    raise AssertionError(words)


class _Other(BaseException):
    """The process goes on as another program."""

    def __init__(self, words: list[str]) -> None:
        self.words = words


def _become(_interpreter: str, line: list[str]) -> None:
    raise _Other(line[2:])


if __name__ == "__main__":
    forking.load((*nursery._NEEDED, *sys.argv[3:]))
    forking.serve_at(Path(sys.argv[2]), _site)
