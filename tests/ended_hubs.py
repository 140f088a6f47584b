"""However a hub of `hanse up` is ended, nothing of it is left running: by SIGKILL (e2e/test_cli.py), by Ctrl-C
(e2e/test_first_afternoon.py), by SIGTERM (deploy/test_wheels.py)."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import psutil


def check_end(process: subprocess.Popen[str], folder: Path, number: signal.Signals, *, of: int = 7) -> None:
    """It ends by a signal, and so do all processes that it has begun: `of` them."""
    left = [psutil.Process(pid) for pid in json.loads((folder / ".hanse/hub/processes.json").read_text()).values()]
    assert len(left) == of
    process.send_signal(number)
    assert process.wait(60) == (-number if number == signal.SIGKILL else 0)
    _, alive = psutil.wait_procs(left, timeout=30)
    assert all(gone(one.pid) for one in alive)


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
