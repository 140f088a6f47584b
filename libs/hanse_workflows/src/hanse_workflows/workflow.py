"""What a workflow is, and the registry of all there are: entry points of the group `hanse.workflows`."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from hanse_fabric.errors import invalid
from hanse_schemas.job import Job
from hanse_workflows.verbs import Verbs


def _any_job(job: Job) -> None:
    """Nothing to refuse."""


@dataclass(frozen=True, slots=True)
class Workflow:
    """A way to conduct a run.

    Attributes:
        conduct: an async function over the port, which asks the same at every pass: it depends on the job and on what
            the verbs return, never on the time, on chance or on the machine.
        check: raises HanseError (INVALID_INPUT, naming the job's field) for a job that the workflow cannot do. It is
            called when the job is submitted.
    """

    conduct: Callable[[Verbs], Awaitable[None]]
    check: Callable[[Job], None] = _any_job

    @property
    def name(self) -> str:
        """Of the function."""
        return str(getattr(self.conduct, "__name__", type(self.conduct).__name__))

    def __post_init__(self) -> None:
        if not inspect.iscoroutinefunction(self.conduct):
            raise invalid("Workflow.conduct", self.conduct, "an async function over `Verbs`")
