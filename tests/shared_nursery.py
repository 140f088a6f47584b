"""Services of a session's hubs, and their sites, are forked from one process of each kind, which has loaded their code.

It saves each hub some 4 s of a core, and each site, with its worker, as much."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from hanse.embedded.nursery import NurseryKind
from listening import listening


@contextmanager
def shared_nursery(kind: NurseryKind, folder: Path, *, program: Path | None = None) -> Iterator[NurseryKind]:
    """A nursery of this kind that many hubs may share while inside.

    Args:
        program: a file that does the same, and more; None: the kind's own.
    """
    at = folder / "socket"
    started = ["-m", kind.program[0]] if program is None else ["-P", str(program)]
    argv = [sys.executable, *started, "--at", str(at), *kind.program[1:]]
    with listening(argv, at, folder / "log", os.environ | {**kind.environment}):
        yield replace(kind, shared=at)
