"""The tasks that this coordinator has sent and still waits for, so that its doors need not read them from the bus.

The bus stays the judge of all others: what is not here may be open in another coordinator's hands, or closing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from hanse_fabric.bus.port import Bus

_Step = tuple[str, str, str]


class OpenSteps:
    """Marks of tasks by project, run and step, and participant."""

    def __init__(self) -> None:
        self._marks: dict[_Step, dict[str, str]] = {}

    @contextmanager
    def collecting(self, project: str, run: str, step: str) -> Iterator[dict[str, str]]:
        """While inside, the tasks whose marks are put into what this gives, by participant, are open."""
        marks: dict[str, str] = {}
        self._marks[project, run, step] = marks
        try:
            yield marks
        finally:
            del self._marks[project, run, step]

    def mark(self, *, project: str, run: str, step: str, participant: str) -> str | None:
        """The mark of a task that is known to be open; None where the bus has to say."""
        return self._marks.get((project, run, step), {}).get(participant)


_OF_BUSES: WeakKeyDictionary[Bus, OpenSteps] = WeakKeyDictionary()


def open_steps_of(bus: Bus) -> OpenSteps:
    """Those of a process: of its connection, which its runs and its doors have in common."""
    return _OF_BUSES.setdefault(bus, OpenSteps())
