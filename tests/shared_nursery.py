"""The services of a session's hubs are forked from one process, which saves each hub some 4 s of a core."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from hanse.embedded.dying import die_with_parent
from hanse.embedded.nursery import SERVICES, Kind


@contextmanager
def shared_nursery(folder: Path) -> Iterator[Kind]:
    """A nursery that many hubs may share while inside."""
    at, log = folder / "socket", folder / "log"
    argv = [sys.executable, "-m", SERVICES.program[0], "--at", str(at), *SERVICES.program[1:]]
    with log.open("ab") as output:
        nursery = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=os.environ | {**SERVICES.environment},
            preexec_fn=die_with_parent,
        )  # fmt: skip
    end = time.monotonic() + 60
    while not at.exists():
        assert nursery.poll() is None, log.read_text()
        assert time.monotonic() < end
        time.sleep(0.02)
    yield replace(SERVICES, shared=at)
    nursery.kill()
    nursery.wait()
