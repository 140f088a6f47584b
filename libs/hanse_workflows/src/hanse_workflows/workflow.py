"""What a workflow is, and a job's by name: entry points of the group `hanse.workflows`, the built-in ones too."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.plugin_methods import require_method
from hanse_fabric.plugins import WORKFLOWS, find, names
from hanse_learning.server.config import foreign
from hanse_schemas.job import Job
from hanse_workflows.failures import RunFailure
from hanse_workflows.per_job import per_job
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
        require_method("workflow", self, "conduct", "run")
        require_method("workflow", self, "check", "job")


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


def as_conducted(job: Job, workflow: Workflow) -> Job:
    """The job under the name of the workflow that a caller has given, for tasks and lineage: where it is installed, the
    entry point's, else its function's.

    Raises:
        HanseError: INVALID_INPUT where another workflow is installed under the function's name.
    """
    installed = names(WORKFLOWS)
    for name in (job.workflow, workflow.name):
        if name in installed and find(WORKFLOWS, name).load() is workflow:
            return job.model_copy(update={"workflow": name})
    if workflow.name in installed:
        raise invalid(
            "workflow", workflow.name, f"a name of its own, for {find(WORKFLOWS, workflow.name)} is another workflow",
            hint="rename the workflow's function",
        )  # fmt: skip
    return job.model_copy(update={"workflow": workflow.name})


def blamed(job: Job, error: BaseException) -> RunFailure | None:
    """How the run ends where its workflow is a plug-in that raised the exception, or that Hanse raised it for; None
    where Hanse alone has failed, or the run's state is the reason."""
    if isinstance(error, HanseError) or not isinstance(error, Exception | SystemExit):
        return None
    plugin = find(WORKFLOWS, job.workflow)
    if reason := plugin.blamed(error):
        return RunFailure(ErrorCode.INVALID_INPUT, f"{reason}: {error}", hint="mend the package")
    if place := plugin.called_from(error):
        return RunFailure(
            ErrorCode.INTERNAL, f"what {plugin} calls in {place} raised {type(error).__name__}: {error}",
            hint="see that the call gives what is asked for, an `await` among it; else Hanse has a defect, and the "
            "coordinator's log has more",
        )  # fmt: skip
    return None


@per_job
def plugins_of(job: Job) -> dict[str, str]:
    """Digests of the job's plug-ins that are not Hanse's own: `workflow NAME`, `strategy NAME`, `algorithm NAME`."""
    own = {}
    if job.workflow in names(WORKFLOWS):  # in a notebook, it need not be installed
        plugin = find(WORKFLOWS, job.workflow)
        own = {} if plugin.built_in else {plugin.title: plugin.digest()}
    return own | ({} if job.study is not None else foreign.plugins_of(job))
