"""What a test does in a fork of its process ends with the test."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from own_fork import in_a_fork


def test_a_fork_ends_with_the_test_that_waits_for_it(tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    def waits() -> int:
        pid.write_text(str(os.getpid()))
        os.kill(os.getppid(), signal.SIGUSR1)
        time.sleep(20)
        return 0

    def limit(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGUSR1, limit)
    try:
        with pytest.raises(TimeoutError):
            in_a_fork(waits)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not psutil.pid_exists(int(pid.read_text()))
