"""What a site answers to a step of a study: masked arrays, each in a ring of its own, or the list of its SNPs."""

from __future__ import annotations

from hanse_datapod.answers.plain import reference_to
from hanse_datapod.answers.withheld import of_the_data
from hanse_datapod.home.journal import FinishedTask
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.worker.port import WorkOutcome
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Outcome, Task
from hanse_site import SiteLink
from hanse_site.answering import result_for


def check_answer(policy: Policy, task: Task, outcome: WorkOutcome) -> None:
    """Check that what was computed may leave: it is of enough people, and each array has the ring announced for it.

    Raises:
        HanseError: POLICY; INVALID_INPUT where hub and site do not mean the same step.
    """
    with of_the_data(task):
        policy.studies.check_samples(outcome.examples)
        policy.asking.check_group(
            outcome.data, "a study of fewer cases or controls", cautious=policy.masking.required
        )  # fmt: skip
        policy.check_examples(outcome.examples, tell=False)
    if task.masking is None or outcome.update is None:
        return
    from hanse_fabric.tensors.file import layout_of

    rings = task.masking.ring.entries
    strangers = sorted({entry.name for entry in layout_of(outcome.update)} ^ rings.keys())
    if strangers:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"task {task.id}: of arrays {', '.join(strangers[:8])} either a ring is announced or values are computed "
            "here, expected both",
            hint="hub and datapod are of different releases: upgrade the older one",
        )


def plain_study_answer(link: SiteLink, task: Task, outcome: WorkOutcome) -> FinishedTask:
    """The signed answer of a step that is not masked. It says neither how many people there are nor how long it took.

    Raises:
        HanseError: NO_SPACE.
    """
    ref, data = (None, None) if outcome.update is None else reference_to(link, task, outcome.update)
    return FinishedTask(link.sign(result_for(task, Outcome.DONE, update=ref)), data)
