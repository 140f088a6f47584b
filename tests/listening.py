"""A program that listens at a socket while a test is at work, such as a nursery: it ends with the test, however that
ends."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from hanse.embedded.dying import die_with_parent


@contextmanager
def listening(
    argv: Sequence[str], at: Path, log: Path, environment: Mapping[str, str], *, within: float = 60
) -> Iterator[None]:
    """The program runs while inside, and what it forks with it.

    Args:
        at: its socket.
        log: what it writes.
        within: seconds until it listens.

    Raises:
        AssertionError: it has ended before it listens, or does not listen in time.
    """
    with log.open("ab") as output:
        program = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, preexec_fn=die_with_parent
        )
    try:
        end = time.monotonic() + within
        while not at.exists():
            assert program.poll() is None, log.read_text()
            assert time.monotonic() < end, f"it does not listen: {log.read_text()}"
            time.sleep(0.02)
        yield
    finally:
        program.kill()
        program.wait()
