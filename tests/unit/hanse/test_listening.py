"""A program that listens while a test is at work is gone after it, however the test, or the program, fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from listening import listening

LISTENS = "import socket, sys, time; socket.socket(socket.AF_UNIX).bind(sys.argv[1]); time.sleep(60)"
DEAF = "import time; print('busy', flush=True); time.sleep(60)"
ENDS = "raise SystemExit('no room')"


def programs(at: Path) -> list[psutil.Process]:
    return [each for each in psutil.Process().children() if each.is_running() and str(at) in each.cmdline()]


def played(code: str, folder: Path, test: Callable[[Path], None], within: float = 60) -> None:
    at = folder / "socket"
    with listening([sys.executable, "-S", "-c", code, str(at)], at, folder / "log", os.environ, within=within):
        test(at)


def fails(at: Path) -> None:
    assert len(programs(at)) == 1
    raise ZeroDivisionError


def test_a_program_is_gone_after_a_test_that_has_failed(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        played(LISTENS, tmp_path, fails)
    assert programs(tmp_path / "socket") == []


@pytest.mark.parametrize(("code", "within", "told"), [(DEAF, 0.5, "does not listen: busy"), (ENDS, 60, "no room")])
def test_a_program_that_does_not_listen_fails_the_test_with_what_it_has_written_and_is_gone(
    code: str, within: float, told: str, tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match=told):
        played(code, tmp_path, fails, within)
    assert programs(tmp_path / "socket") == []
