"""What was done, how long each took, and what came out: printed as it happens, and as a table at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(slots=True)
class Stage:
    """One line of the table. What it found is for its own code to say."""

    name: str
    seconds: float = 0.0
    found: str = ""


class Stages:
    """The stages so far, in their order."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._done: list[Stage] = []

    @contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """Measures its body; a failure is noted in the table and goes on its way."""
        stage, began = Stage(name), time.monotonic()
        print(f"{name} ...", file=sys.stderr, flush=True)
        self._done.append(stage)
        try:
            yield stage
        except BaseException:
            stage.found = "FAILED"
            raise
        finally:
            stage.seconds = time.monotonic() - began
            print(f"    {stage.seconds:.1f} s  {stage.found}", file=sys.stderr, flush=True)

    def table(self) -> str:
        """All stages, one a line."""
        width = max((len(stage.name) for stage in self._done), default=5)
        lines = [f"{'stage':<{width}}  seconds  what came out"]
        lines += [f"{stage.name:<{width}}  {stage.seconds:7.1f}  {stage.found}" for stage in self._done]
        lines.append(f"{'all':<{width}}  {time.monotonic() - self._began:7.1f}")
        return "\n".join(lines)

    def write(self, path: Path) -> None:
        path.write_text(self.table() + "\n")
