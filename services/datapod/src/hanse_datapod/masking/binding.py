"""What this site is asked in a masked task, as digests that it works out itself. Once bound, it stays so.

With them, its answer is summed only with answers to the same request (`hanse_learning.binding`). A hub of release 0.1.0
binds nothing: the sum of one site's answer and of others' that are known is that one's. So a home that has joined by
this release answers no such task at all, for its hub can bind. One that has joined by 0.1.0 answers them by its policy
alone, and until it has answered a bound task in its project.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hanse_datapod.home.folders import masked
from hanse_datapod.masking.plan import refused
from hanse_datapod.policy.refusal import forbidden
from hanse_datapod.policy.site_policy import Policy
from hanse_fabric.durable import write_durably
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import MaskingMode, Task, TaskKind
from hanse_site.identity import BOUND

if TYPE_CHECKING:
    from hanse_privacy.masks.bound import Asked

_SUMMED = frozenset({TaskKind.TRAIN, TaskKind.EVALUATE, TaskKind.STUDY, TaskKind.PREPARE})
_BEGINS = _SUMMED | {TaskKind.SHARE}


def check_binding(policy: Policy, task: Task, home: Path) -> None:
    """Whether the task is bound as this site wants it, with this site's own seed. When this returns, a task that is not
    bound is refused from now on, where this one is.

    Raises:
        HanseError: POLICY where it is not; TAMPERED for another seed than follows from the job's; NO_SPACE.
    """
    if not masked(task) or task.masking is None or task.masking.mode is MaskingMode.RING or task.kind not in _BEGINS:
        return
    mark = home / BOUND
    if task.bound is None:
        if policy.masking.bound_alone:
            raise forbidden(
                "masking.bound", "a masked task that is bound to nothing", "required",
                hint="the hub, or its run, is of release 0.1.0: its operator upgrades, the owner begins anew",
            )  # fmt: skip
        if mark.exists():
            raise refused(
                "it is bound to nothing, and this project's hub binds what it asks, or did when this site joined",
                hint="a hub that binds its requests does not stop to; begin a run of release 0.1.0 anew",
            )
        return
    if task.kind in _SUMMED:
        _check_seed(task)
    if not mark.exists():
        write_durably(mark, b"")


def asked_of(task: Task, *, noise: bytes | None = None) -> Asked | None:
    """The digests of what a task asks, from the task itself; None where it is not bound.

    Args:
        noise: digest of what was agreed on who draws noise for whom.

    Raises:
        HanseError: INVALID_INPUT for settings that cannot be read.
    """
    if task.bound is None:
        return None
    from hanse_learning.binding import request_digest, work_digest
    from hanse_privacy.masks.bound import Asked

    return Asked(request_digest(task, noise=noise), work_digest(task))


def _check_seed(task: Task) -> None:
    from hanse_learning.binding import task_seed

    if task.bound is None:
        return
    at = task.bound.key if task.kind is TaskKind.STUDY else task.round
    if task.seed != task_seed(task.kind, task.bound.seed, at, task.participant):
        raise HanseError(
            ErrorCode.TAMPERED,
            f"task.seed: {task.seed} is not the one that follows from the job's seed for {task.participant}",
            hint="a seed that is chosen for one site could make its answer tell more than others'",
        )
