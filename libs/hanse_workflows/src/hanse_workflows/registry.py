"""A job's workflow, by name: entry points of the group `hanse.workflows`, the built-in ones too."""

from __future__ import annotations

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.plugins import WORKFLOWS, find, names
from hanse_learning.server.config import foreign
from hanse_schemas.job import Job
from hanse_workflows.failures import RunFailure
from hanse_workflows.workflow import Workflow


def workflow_of(job: Job) -> Workflow:
    """The job's workflow, which has agreed to it.

    Raises:
        HanseError: INVALID_INPUT for a name that nobody offers, an entry point that is no workflow, or a job that the
            workflow cannot do; CONFLICT for a name that two packages offer.
    """
    try:
        plugin = find(WORKFLOWS, job.workflow)
    except HanseError as error:
        raise HanseError(error.code, f"workflow: {error.message}", hint=error.hint) from None
    loaded = plugin.load()
    if not isinstance(loaded, Workflow):
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"{plugin}: {plugin.entry.value} is no hanse_workflows.Workflow",
            hint="docs/extending.md says what a workflow is",
        )  # fmt: skip
    loaded.check(job)
    return loaded


def blamed(job: Job, error: BaseException) -> RunFailure | None:
    """How the run ends where its workflow is a plug-in that raised the exception; None where Hanse has failed, or the
    run's state is the reason."""
    if isinstance(error, HanseError) or not isinstance(error, Exception | SystemExit):
        return None
    reason = find(WORKFLOWS, job.workflow).blamed(error)
    return None if reason is None else RunFailure(ErrorCode.INVALID_INPUT, reason, hint="mend the package")


def plugins_of(job: Job) -> dict[str, str]:
    """Digests of the job's plug-ins that are not Hanse's own: `workflow NAME`, `strategy NAME`, `algorithm NAME`."""
    own = {}
    if job.workflow in names(WORKFLOWS):  # in a notebook, it need not be installed
        plugin = find(WORKFLOWS, job.workflow)
        own = {} if plugin.built_in else {plugin.title: plugin.digest()}
    return own | ({} if job.study is not None else foreign.plugins_of(job))
