"""Commands of the line, each a process of its own that is forked from one which has loaded their code once.

Loading it takes most of a short command's time: some 0.7 s of a core. Folder, environment, arguments, output and
status are the command's own, as they are of `python -m hanse`, with which other tests start the same commands.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hanse_fabric import forking

PROGRAMS = {"hanse": "hanse.cli", "hanse_datapod": "hanse_datapod.cli"}
"""The module whose `main` is a program."""
_LOADED = (
    "hanse.cli.output", "hanse.hub", "hanse_datapod.cli", "hanse_datapod.home.left", "hanse_datapod.agreeing",
)  # fmt: skip
_CLONE_NEWNET = 0x40000000


class Commands:
    """Runs commands while their nursery lives."""

    def __init__(self, at: Path) -> None:
        self._at = at

    def run(
        self, words: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None, timeout: float = 120,
        network: str = "",
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """A command to its end, which nothing is typed into.

        Args:
            words: as after `python -m`.
            env: its whole environment; None: this process's.
            network: the name of the network namespace that it runs in (`ip netns`); empty: this process's.
        """
        assert words[0] in PROGRAMS, words[0]
        with TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as line:
            files = {name: str(Path(folder) / name) for name in ("stdout", "stderr", "log")}
            order = {
                "name": "command", "argv": list(words), "folder": str(cwd), "log": files["log"], "written": files,
                "environment": dict(os.environ if env is None else env), "network": network,
            }  # fmt: skip
            line.connect(str(self._at))
            line.settimeout(timeout)
            line.sendall(json.dumps(order).encode() + b"\n")
            with line.makefile() as answers:
                try:
                    begun = json.loads(answers.readline())
                    assert begun["pid"], "another environment of Python's own: such a command is started as a program"
                    status = json.loads(answers.readline())["status"]
                except TimeoutError:
                    raise subprocess.TimeoutExpired(list(words), timeout) from None
            said = {name: path.read_text() for name in ("stdout", "stderr") if (path := Path(files[name])).exists()}
            lost = Path(files["log"]).read_text()
            return subprocess.CompletedProcess(
                list(words), status, said.get("stdout", ""), said.get("stderr", "") + lost
            )  # fmt: skip


def _run(asked: forking.Order) -> int:
    """What the forked process does."""
    if asked["network"]:
        _enter(Path("/run/netns") / asked["network"])
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        written = os.open(asked["written"][name], os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(written, descriptor)
        os.close(written)
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.path.insert(0, asked["folder"])
    os.execv = _become  # type: ignore[assignment]
    try:
        return _begin(asked["argv"])
    except _Other as other:
        return _begin(other.words)


def _enter(network: Path) -> None:
    """As `ip netns exec` does."""
    with network.open() as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns", str(network))


def _begin(words: list[str]) -> int:
    sys.argv = words
    status: Any = import_module(PROGRAMS[words[0]]).main()
    return int(status or 0)


class _Other(BaseException):
    """The process goes on as another program, of which nothing need be loaded either."""

    def __init__(self, words: list[str]) -> None:
        self.words = words


def _become(_interpreter: str, words: list[str]) -> None:
    assert words[1] == "-m", words
    assert words[2] in PROGRAMS, words
    raise _Other(words[2:])


if __name__ == "__main__":
    from hanse.cli import app

    forking.load((*_LOADED, *(f"hanse.cli.{name}" for name in (*app._COMMANDS, *app._GROUPS))))
    forking.serve_at(Path(sys.argv[1]), _run)
