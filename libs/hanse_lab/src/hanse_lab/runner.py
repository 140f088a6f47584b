"""Playing an experiment's cells: in several processes, each outcome kept as it comes, none played twice."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing.connection import wait
from pathlib import Path
from types import MappingProxyType

from pydantic import ValidationError

from hanse_fabric.durable import write_durably
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_lab.cells import Cell, Task
from hanse_lab.data import DIGITS_IN
from hanse_lab.play import CellOutcome, play

OnDone = Callable[[int, int], None]
"""(outcomes that are there, of how many)."""


def outcomes_of(
    cells: Sequence[Cell], folder: Path, *, known: Mapping[str, CellOutcome] = MappingProxyType({}), workers: int = 1,
    fresh: bool = False, limit: float = 86_400.0, on_done: OnDone = lambda _done, _all: None,
) -> list[CellOutcome]:  # fmt: skip
    """The outcome of each cell, in their order: from `folder` where it is there, otherwise played and kept there.

    Args:
        folder: outcomes lie here by their tasks' keys; made if absent.
        known: outcomes of a record, by key, which are not played either.
        workers: processes at once; 1 plays in this one.
        fresh: play all anew.
        limit: seconds for all of them.

    Raises:
        HanseError: TIMEOUT at the limit; what a cell could not be played for.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tasks = {cell.task.key: cell.task for cell in cells}
    kept = {} if fresh else {key: found for key in tasks if (found := _read(folder / f"{key}.json")) is not None}
    there = {key: kept.get(key) or known[key] for key in tasks if key in kept or (key in known and not fresh)}
    on_done(len(there), len(tasks))
    missing = {key: task for key, task in tasks.items() if key not in there}
    for key, outcome in _played(missing, workers, limit):
        write_durably(folder / f"{key}.json", outcome.model_dump_json(indent=1).encode(), mode=0o644)
        there[key] = outcome
        on_done(len(there), len(tasks))
    return [there[cell.task.key] for cell in cells]


def _played(tasks: dict[str, Task], workers: int, limit: float) -> Iterator[tuple[str, CellOutcome]]:
    if workers < 2 or len(tasks) < 2:
        for key, task in tasks.items():
            yield key, play(task)
        return
    # Not forked from this process: torch's threads do not survive it. Where it can be, from one that has loaded torch
    # and begun no threads: loading takes each seconds, of torch and of the library that has the digits.
    context = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
    digits = any(task.data.name == "digits" for task in tasks.values())
    context.set_forkserver_preload([play.__module__, *([DIGITS_IN] if digits else [])])
    pool = ProcessPoolExecutor(min(workers, len(tasks)), context, _begin)
    try:
        futures = {pool.submit(_play, task.model_dump_json()): key for key, task in tasks.items()}
        for future in as_completed(futures, limit):
            made = future.result()
            if isinstance(made, str):
                yield futures[future], CellOutcome.model_validate_json(made)
            else:
                raise HanseError(ErrorCode.of(made[0]), made[1], hint=made[2])
    except TimeoutError:
        raise HanseError(ErrorCode.TIMEOUT, f"experiment: not done within {limit:g} s") from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _begin() -> None:
    """A worker ends with the process that started it, and leaves ctrl-C to that process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), name="parent", daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def _play(task: str) -> str | tuple[str, str, str]:
    """In a process of its own: JSON in, JSON out, or an error's code, message and hint."""
    try:
        return play(Task.model_validate_json(task)).model_dump_json()
    except HanseError as error:
        return error.code.code, error.message, error.hint


def _read(path: Path) -> CellOutcome | None:
    try:
        return CellOutcome.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None  # cut short, or of another release: it is played again


class ProgressBar:
    """One line on stderr: a bar, cells, and what time is left by the time that it took so far."""

    def __init__(self, title: str, *, width: int = 30) -> None:
        self._title, self._width = title, width
        self._began, self._first = time.monotonic(), -1

    def __call__(self, done: int, total: int) -> None:
        """Show it; where stderr is no terminal, the end alone."""
        if self._first < 0:
            self._first = done
        live, over = sys.stderr.isatty(), done == total
        if not live and not over:
            return
        filled = self._width * done // max(1, total)
        played, spent = done - self._first, time.monotonic() - self._began
        left = f"{spent / played * (total - done):.0f} s left" if played and not over else f"{spent:.0f} s"
        bar = "#" * filled + "." * (self._width - filled)
        print(f"\r{self._title} [{bar}] {done}/{total} cells, {left}   ", end="\n" if over else "", file=sys.stderr)
