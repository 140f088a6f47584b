"""What the open tasks of each project take of the room that all projects share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from hanse_fabric.bus.port import Bus
from hanse_fabric.errors import ErrorCode
from hanse_workflows.failures import RunFailure


class TaskRoom:
    """Of the steps that one coordinator has open."""

    def __init__(self) -> None:
        self._projects: Counter[str] = Counter()

    @contextmanager
    def step(self, project: str, run: str, most: int) -> Iterator[Callable[[int], None]]:
        """While a step of a run is open.

        Args:
            most: bytes that the open tasks of the project may have; 0: no limit.

        Returns:
            What each task of so many bytes is told to; it raises RunFailure QUOTA.
        """
        taken = 0

        def take(size: int) -> None:
            nonlocal taken
            if most and self._projects[project] + size > most:
                raise RunFailure(
                    ErrorCode.QUOTA,
                    f"quota tasks of project {project}: a task of run {run} would have {size} bytes, those that are "
                    f"open have {self._projects[project]}, {most} are allowed",
                    hint="fewer sites at once or a shorter job, or ask the hub's operator for more",
                )
            self._projects[project] += size
            taken += size

        try:
            yield take
        finally:
            self._projects[project] -= taken
            if not self._projects[project]:
                del self._projects[project]


_OF_BUSES: WeakKeyDictionary[Bus, TaskRoom] = WeakKeyDictionary()


def task_room_of(bus: Bus) -> TaskRoom:
    """That of a process: of its connection, which its runs have in common."""
    return _OF_BUSES.setdefault(bus, TaskRoom())
