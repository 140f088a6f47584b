"""The tasks that this coordinator has sent and still waits for, so that its doors need not read them from the bus; and
what it has read and verified at its doors, so that it need not do it again.

The bus stays the judge of all others: what is not here may be open in another coordinator's hands, or closing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from hanse_fabric.bus.port import Bus
from hanse_fabric.messages import Result

_Step = tuple[str, str, str]


class OpenSteps:
    """Marks of tasks by project, run and step, and participant; and what each has last answered, and signed beside."""

    def __init__(self) -> None:
        self._marks: dict[_Step, dict[str, str]] = {}
        self._beside: dict[_Step, dict[str, str]] = {}
        self._read: dict[_Step, dict[str, tuple[bytes, Result]]] = {}

    @contextmanager
    def collecting(self, project: str, run: str, step: str) -> Iterator[dict[str, str]]:
        """While inside, the tasks whose marks are put into what this gives, by participant, are open."""
        marks: dict[str, str] = {}
        where = project, run, step
        self._marks[where], self._beside[where], self._read[where] = marks, {}, {}
        try:
            yield marks
        finally:
            del self._marks[where], self._beside[where], self._read[where]

    def mark(self, *, project: str, run: str, step: str, participant: str) -> str | None:
        """The mark of a task that is known to be open; None where the bus has to say."""
        return self._marks.get((project, run, step), {}).get(participant)

    def note_beside(self, text: str | None, *, project: str, run: str, step: str, participant: str) -> None:
        """What came beside an answer, in a request that the participant has signed."""
        if text is not None and (noted := self._beside.get((project, run, step))) is not None:
            noted[participant] = text

    def came_beside(self, text: str, *, project: str, run: str, step: str, participant: str) -> bool:
        """Whether it was noted."""
        return self._beside.get((project, run, step), {}).get(participant) == text

    def note_read(self, data: bytes, result: Result, *, project: str, run: str, step: str, participant: str) -> None:
        """What a participant's answer says, which was read at the door; its signature was not looked at."""
        if (noted := self._read.get((project, run, step))) is not None:
            noted[participant] = data, result

    def was_read(self, data: bytes, *, project: str, run: str, step: str, participant: str) -> Result | None:
        """What these very bytes say; None where they have to be read."""
        noted = self._read.get((project, run, step), {}).get(participant)
        return noted[1] if noted is not None and noted[0] == data else None


_OF_BUSES: WeakKeyDictionary[Bus, OpenSteps] = WeakKeyDictionary()


def open_steps_of(bus: Bus) -> OpenSteps:
    """Those of a process: of its connection, which its runs and its doors have in common."""
    return _OF_BUSES.setdefault(bus, OpenSteps())
