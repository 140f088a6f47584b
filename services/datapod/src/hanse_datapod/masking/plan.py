"""What a task announces of its masked sum: whether the site can take part in it, and how many others it needs."""

from __future__ import annotations

from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.study.tasks import belongs_to_study
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Masking, Task


def check_plan(task: Task, masking: Masking) -> None:
    """Refuse a ring in which the announced sum could overflow, or that is made for fewer participants than asked.

    Raises:
        HanseError: POLICY naming the number and what was expected.
    """
    from hanse_privacy.ring.plan import check_plan as check_ring

    if masking.ring.participants < task.peers:
        raise refused(f"the ring is made for {masking.ring.participants} participants, {task.peers} are asked")
    try:
        check_ring(masking.ring)
    except HanseError as error:
        raise refused(error.message) from None


def floor_of(policy: Policy, task: Task) -> int:
    """Three: of a sum of two, each knows the other's part. Two in a study, where the policy accepts studies of two."""
    return 2 if belongs_to_study(task) and policy.studies.minimum_cohorts <= 2 else 3


def smallest_sum(policy: Policy, task: Task, masking: Masking) -> int:
    """The least number of participants that the sum must have, those who may collude among them.

    Policy and job each name one, the policy of honest ones, and it is not below `floor_of`. With distributed noise, so
    many must answer that their shares make the noise that this site's ledger was charged for, even if others drop out.
    """
    honest = max(floor_of(policy, task), policy.masking.minimum)
    wanted = max(honest + policy.masking.colluding, masking.minimum)
    if task.privacy is None:
        return wanted
    from hanse_privacy.noise.aggregate import least_answers

    return max(wanted, least_answers(task.privacy.privacy, task.privacy.active))


def refused(reason: str, *, hint: str = "") -> HanseError:
    """The error for a masked sum that the site does not take part in."""
    return HanseError(ErrorCode.POLICY, f"the masked sum is refused: {reason}", hint=hint)
