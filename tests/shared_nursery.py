"""Services of a session's hubs, and their sites, are forked from one process of each kind, which has loaded their code.

It saves each hub some 4 s of a core, and each site, with its worker, as much."""

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
from hanse.embedded.nursery import Kind


@contextmanager
def shared_nursery(kind: Kind, folder: Path) -> Iterator[Kind]:
    """A nursery of this kind that many hubs may share while inside."""
    at, log = folder / "socket", folder / "log"
    argv = [sys.executable, "-m", kind.program[0], "--at", str(at), *kind.program[1:]]
    with log.open("ab") as output:
        nursery = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=os.environ | {**kind.environment},
            preexec_fn=die_with_parent,
        )  # fmt: skip
    end = time.monotonic() + 60
    while not at.exists():
        assert nursery.poll() is None, log.read_text()
        assert time.monotonic() < end
        time.sleep(0.02)
    yield replace(kind, shared=at)
    nursery.kill()
    nursery.wait()
