"""A team's own loop (`hanse.join` with a policy), in a thread of its own, as the worker of a site."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from hanse_datapod.pipeline.in_hand import InHand
from hanse_datapod.pipeline.worker import PipelineWorker
from hanse_fabric.errors import HanseError

Answer = Callable[[InHand], None]


def loop_that(answer: Answer, first: Answer | None = None) -> PipelineWorker:
    """One that answers so, and goes on to the next task where that is refused, as `hanse.site_with_policy` does.

    Args:
        first: how it makes a first model; None: as it answers everything.
    """
    worker = PipelineWorker((), 6)

    def run() -> None:
        while (task := worker.next_task()) is not None:
            with suppress(HanseError):
                (first if first is not None and task.kind == "initialize" else answer)(task)
            if task.open:
                task.fail("the pipeline went on without an answer")

    threading.Thread(target=run, daemon=True).start()
    return worker
