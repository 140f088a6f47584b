"""A benchmark's own folder. Large runs leave gigabytes, so it goes also where the benchmark is stopped."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType


def scratch(name: str, *, within: Path | None = None) -> TemporaryDirectory[str]:
    """The folder, as a context.

    Args:
        name: of the benchmark.
        within: the folder that it is made in; None: the system's for temporary files.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _end)
    return TemporaryDirectory(prefix=f"hanse-{name}-", dir=within, ignore_cleanup_errors=True)


def _end(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)
