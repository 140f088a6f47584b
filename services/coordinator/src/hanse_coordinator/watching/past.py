"""What of a run's past still counts for who begins to watch it: a hundred thousand events, in a few hundred.

What is left out is overtaken: where a site stood before it stood elsewhere. Curves of finished rounds are another
matter (`hanse_coordinator.thinning`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from hanse_fabric.messages import RunEvent

Told = tuple[int, RunEvent]
"""An event, and its place in the stream."""

_NOTES = 100
_NOTED = frozenset({"note", "late-result", "refused"})
_LATEST = frozenset({"round-started", "round-finished", "computed", "structure"})
_LONG = frozenset({"sites", "curves"})


class Past:
    """The past of one run, event by event."""

    def __init__(self) -> None:
        self._latest: dict[tuple[str, str], Told] = {}
        self._states: list[Told] = []
        self._notes: deque[Told] = deque(maxlen=_NOTES)
        self._sent = {"down": 0, "up": 0}
        self.upto = 0

    def take(self, sequence: int, event: RunEvent) -> None:
        """One event more; they come in order."""
        self.upto = sequence
        told, data = (sequence, event), event.data
        if event.kind == "state":
            self._states.append(told)
        elif event.kind in _NOTED:
            self._notes.append(told)
        elif event.kind == "task-answered":
            if data.get("outcome", "done") != "done":
                self._notes.append(told)
            self._of_site(event, told)
        elif event.kind == "progress":
            self._of_site(event, told)
        elif event.kind in _LATEST:
            if event.kind == "round-finished":
                told = (sequence, self._finished(event))
            self._latest[event.kind, ""] = told

    def since(self, after: int) -> Sequence[Told]:
        """The events behind a place that still count, in order.

        A finished round has beside its own `bytes` `sent`: those of all rounds up to it.
        """
        every = dict([*self._states, *self._notes, *self._latest.values()])
        return [(at, every[at]) for at in sorted(every) if at > after]

    def _of_site(self, event: RunEvent, told: Told) -> None:
        """Where a site stands is said by its newest answer, or by progress that came after that."""
        who = str(event.data.get("participant", ""))
        if event.kind == "task-answered":
            self._latest.pop(("progress", who), None)
        self._latest.pop((event.kind, who), None)
        self._latest[event.kind, who] = told

    def _finished(self, event: RunEvent) -> RunEvent:
        sizes = event.data.get("bytes")
        for way in self._sent:
            size = sizes.get(way, 0) if isinstance(sizes, dict) else 0
            self._sent[way] += size if isinstance(size, int) else 0
        short = {name: value for name, value in event.data.items() if name not in _LONG}
        return event.model_copy(update={"data": {**short, "sent": dict(self._sent)}})
