"""All workflows there are, by name: entry points of the group `hanse.workflows`, the built-in ones too."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_schemas.job import Job
from hanse_workflows.workflow import Workflow

GROUP = "hanse.workflows"


@cache
def workflows() -> dict[str, Workflow]:
    """Every installed workflow.

    Raises:
        HanseError: CONFLICT where two packages give one name; INVALID_INPUT where an entry point is no `Workflow`.
    """
    found: dict[str, Workflow] = {}
    for point in entry_points(group=GROUP):
        if point.name in found:
            raise HanseError(ErrorCode.CONFLICT, f"workflow {point.name}: two installed packages have one of this name")
        loaded = point.load()
        if not isinstance(loaded, Workflow):
            raise invalid(f"entry point {point.value}", type(loaded).__name__, "a hanse_workflows.Workflow")
        found[point.name] = loaded
    return found


def workflow_of(job: Job) -> Workflow:
    """The job's workflow, which has agreed to it.

    Raises:
        HanseError: INVALID_INPUT for a name that is not installed, or a job that the workflow cannot do.
    """
    known = workflows()
    if job.workflow not in known:
        raise invalid("workflow", job.workflow, f"one of those installed here: {', '.join(sorted(known))}")
    known[job.workflow].check(job)
    return known[job.workflow]
