"""Children that never outlive their parent, however it ends. Linux only: elsewhere they end when they are told to."""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1
# Looked up before any fork: nothing is loaded between fork and exec.
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def die_with_parent() -> None:
    """Said in the child, before it becomes another program."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
