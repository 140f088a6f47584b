"""Runs what changes its process for good in a fork of this one, which has loaded most of what it needs: a program that
is started loads it anew, torch alone a second and a half."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from subprocess import CompletedProcess
from tempfile import TemporaryFile

from hanse_fabric.forking import die_with

_SECONDS = 300


def in_a_fork(do: Callable[[], int]) -> CompletedProcess[str]:
    """Its status, and what it has said. Stdout and stderr are one."""
    with TemporaryFile("w+") as said:
        parent = os.getpid()
        if not (child := os.fork()):
            _be(do, said.fileno(), parent)
        try:
            _, status = os.waitpid(child, 0)
        except BaseException:  # such as the test's own limit of time
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise
        said.seek(0)
        return CompletedProcess((), os.waitstatus_to_exitcode(status), said.read())


def _be(do: Callable[[], int], says: int, parent: int) -> None:
    status = 1
    try:
        die_with(parent)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_SECONDS)
        os.dup2(says, 1)
        os.dup2(says, 2)
        with os.fdopen(1, "w", closefd=False) as sys.stdout, os.fdopen(2, "w", closefd=False) as sys.stderr:
            try:
                status = do()
            except BaseException:
                traceback.print_exc()
    finally:
        os._exit(status)
