"""What the journals of each project's runs take of the room that all projects share. They are kept until their
run is removed."""

from __future__ import annotations

from collections import Counter

from hanse_fabric.errors import ErrorCode
from hanse_workflows.failures import RunFailure


class JournalRoom:
    """As one coordinator knows it: of the runs that it holds to the byte, of all others as their records say.

    Args:
        most: bytes that the journals of one project may have; 0: no limit.
    """

    def __init__(self, most: int = 0) -> None:
        self._most = most
        self._runs: dict[tuple[str, str], int] = {}
        self._projects: Counter[str] = Counter()

    def note(self, project: str, run: str, size: int) -> None:
        """The journal of a run has so many bytes at least."""
        if (more := size - self._runs.get((project, run), 0)) > 0:
            self._runs[project, run] = size
            self._projects[project] += more

    def forget(self, project: str, run: str) -> None:
        """A run was removed, and its journal."""
        self._projects[project] -= self._runs.pop((project, run), 0)

    def take(self, project: str, run: str, size: int, *, last: bool = False) -> None:
        """The journal of a run is to have so many bytes.

        Args:
            last: it is the entry that a run ends with, for which there is always room.

        Raises:
            RunFailure: QUOTA.
        """
        used = self._projects[project] - self._runs.get((project, run), 0)
        if self._most and not last and used + size > self._most:
            raise RunFailure(
                ErrorCode.QUOTA,
                f"quota journals of project {project}: the journal of run {run} would have {size} bytes, those of its "
                f"other runs have {used}, {self._most} are allowed",
                hint="fewer sites or rounds, remove runs that have ended, or ask the hub's operator for more",
            )
        self.note(project, run, size)
