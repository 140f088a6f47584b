"""How many different questions for order statistics a run asks: no more than one search needs, whoever asks."""

from __future__ import annotations

from collections import OrderedDict

from hanse_datapod.policy.refusal import forbidden
from hanse_fabric.canonical import canonical
from hanse_fabric.messages import Task, TaskKind
from hanse_learning.preparation.order import PASSES

_RUNS = 1000


class Questions:
    """Those of the last runs since the datapod started, which no hub can make it forget."""

    def __init__(self) -> None:
        self._asked: OrderedDict[str, set[bytes]] = OrderedDict()

    def check(self, task: Task) -> None:
        """Whether the task's question is one of so many; one that was asked before counts once.

        Raises:
            HanseError: POLICY.
        """
        asked = task.config.get("quantiles") if task.kind is TaskKind.PREPARE else None
        if asked is None:
            return
        known = self._asked.setdefault(task.run, set())
        self._asked.move_to_end(task.run)
        question = canonical(asked)
        if question not in known and len(known) >= PASSES:
            raise forbidden("asking.protocols", f"quantiles in more than {PASSES} steps", f"{PASSES} steps of a run")
        known.add(question)
        while len(self._asked) > _RUNS:
            self._asked.popitem(last=False)
