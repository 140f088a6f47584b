"""What a task says about the study that it belongs to."""

from __future__ import annotations

from pydantic import ValidationError

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Task, TaskKind, explain
from hanse_schemas.study import Study

STUDY_WORKFLOW = "association_study"
PLAIN_STEPS = frozenset({"open"})
"""Steps whose answer is not about people: the SNPs that a cohort has."""
FORGET = "forget"
"""The step by which the hub says that a run has ended: what it has left here is removed, and nothing is answered."""


def is_study_step(task: Task) -> bool:
    """Whether the task is a step of a study, which is computed beside others of its run."""
    return task.kind is TaskKind.STUDY


def belongs_to_study(task: Task) -> bool:
    """Whether the task belongs to a study: one of its steps, or of its masking protocol's."""
    return task.workflow == STUDY_WORKFLOW


def asks_for_snps(task: Task) -> bool:
    """Whether the task is the step of a study that asks for the site's list of SNPs."""
    return is_study_step(task) and task.config.get("step") in PLAIN_STEPS


def says_run_ended(task: Task) -> bool:
    """Whether the task only says that its run has ended."""
    return is_study_step(task) and task.config.get("step") == FORGET


def study_of(task: Task) -> Study:
    """The study that the task is a step of.

    Raises:
        HanseError: INVALID_INPUT naming field, value and what was expected.
    """
    try:
        return Study.model_validate(task.config.get("study") or {})
    except ValidationError as error:
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"task {task.id}.study: {explain(error)}", hint="upgrade hub or datapod"
        ) from None


def step_of(task: Task) -> str:
    """The name of the step.

    Raises:
        HanseError: INVALID_INPUT where it is none.
    """
    step = task.config.get("step")
    if not isinstance(step, str) or not step:
        raise HanseError(ErrorCode.INVALID_INPUT, f"task {task.id}.step: {step!r}, the name of a step was expected")
    return step
