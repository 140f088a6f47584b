"""What a task announces of its masked sum: whether the site can take part in it, and how many others it needs."""

from __future__ import annotations

from hanse_datapod.policy.refusal import forbidden
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.study.tasks import belongs_to_study
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Masking, RingPlan, Task, TaskKind
from hanse_fabric.messages.masking import Ring
from hanse_learning.preparation.noisy import noisy_rings
from hanse_learning.preparation.plan import HISTOGRAM, classes_in, counted, rings
from hanse_schemas.prepare import rules_of

_OF_UPDATES = frozenset({TaskKind.TRAIN, TaskKind.ADVERTISE, TaskKind.SHARE, TaskKind.UNMASK, TaskKind.CHECK})
"""Kinds whose plan may be of updates: the steps of mode `pairwise` are told that of the answers that they are for, and
who asks whether a site would train, that of the training."""


def check_plan(task: Task, masking: Masking) -> None:
    """Refuse a ring in which the announced sum could overflow, or that is made for fewer participants than asked; signs
    beside sums whose noise is shared; and of a preparation one that cuts.

    Raises:
        HanseError: POLICY naming the number and what was expected; INVALID_INPUT for a preparation without rules.
    """
    from hanse_privacy.ring.plan import check_plan as check_ring

    if masking.ring.participants < task.peers:
        raise refused(f"the ring is made for {masking.ring.participants} participants, {task.peers} are asked")
    try:
        check_ring(masking.ring)
    except HanseError as error:
        raise refused(error.message) from None
    if task.kind not in _OF_UPDATES:
        if masking.ring.rotation is not None:
            raise refused(f"the ring rotates updates, and a task of kind {task.kind} has none")
        if masking.ring.chosen is not None:
            raise refused(f"the ring chooses parameters of updates, and a task of kind {task.kind} has none")
        if masking.ring.signs is not None:
            raise refused(f"the ring counts the signs of updates, and a task of kind {task.kind} has none")
    check_signs(task, masking.ring)
    if task.kind is TaskKind.PREPARE:
        _check_uncut(task, masking.ring)


def check_signs(task: Task, plan: RingPlan) -> None:
    """Refuse signs beside an update that is hidden by its share of noise: they have none.

    Raises:
        HanseError: POLICY.
    """
    if plan.signs is not None and task.privacy is not None and task.privacy.privacy.placement == "distributed":
        raise refused("the ring counts the signs of updates, to which no noise is added")


def _check_uncut(task: Task, plan: RingPlan) -> None:
    """Counts and limbs fit the rings that honest hubs announce. With others, sums of the same sites that were cut here
    and there would tell who is beyond which limit."""
    if plan.stochastic or plan.largest_weight != 1 or plan.entries != _rings(task, plan.participants):
        raise refused("a preparation's sums are neither weighted, cut nor rounded, but other rings are announced")


def _rings(task: Task, participants: int) -> dict[str, Ring]:
    if task.privacy is not None:
        return noisy_rings(participants)
    if task.config.get("quantiles") is not None:
        return rings((HISTOGRAM,), participants)
    return rings(counted(rules_of(task.config.get("prepare")), classes_in(task.config)).arrays, participants)


def floor_of(policy: Policy, task: Task) -> int:
    """Three: of a sum of two, each knows the other's part. Two in a study, where the policy accepts studies of two."""
    return 2 if belongs_to_study(task) and policy.studies.minimum_cohorts <= 2 else 3


def smallest_sum(policy: Policy, task: Task, masking: Masking) -> int:
    """The least number of participants that the sum must have, those who may collude among them.

    Policy and job each name one, the policy of honest ones, and it is not below `floor_of`. With distributed noise, so
    many must answer that their shares make the noise that this site's ledger was charged for, even if others drop out
    (`shares_wanted`).
    """
    return max(updates_wanted(policy, task, masking), shares_wanted(policy, task))


def shares_wanted(policy: Policy, task: Task) -> int:
    """How many must answer, for the shares of those who do not collude to make the noise that is charged. Who colludes
    takes its own share off the sum, or adds none."""
    if task.privacy is None:
        return 1
    from hanse_privacy.noise.aggregate import WHOLE, least_answers, parts_of

    privacy, active = task.privacy.privacy, task.privacy.active
    least = least_answers(privacy, active)
    if privacy.placement != "distributed" or privacy.noise in WHOLE:
        return least
    return max(least, parts_of(privacy, active) + policy.masking.colluding)


def check_shares(policy: Policy, task: Task) -> None:
    """Refuse noise that is too small without the shares of those who may collude, whoever answers.

    Raises:
        HanseError: POLICY naming the number and what was expected.
    """
    if task.privacy is not None and shares_wanted(policy, task) > task.privacy.active:
        raise forbidden(
            "masking.colluding", f"noise that is whole without {task.privacy.privacy.colluding} who collude",
            f"without {policy.masking.colluding}",
            hint=f"the owner sets privacy.colluding to {policy.masking.colluding} or more, or for Laplace kinds "
            "noise: local-laplace",
        )  # fmt: skip


def updates_wanted(policy: Policy, task: Task, masking: Masking) -> int:
    """`smallest_sum`, whatever noise there is."""
    honest = max(floor_of(policy, task), policy.masking.minimum)
    return max(honest + policy.masking.colluding, masking.minimum)


def refused(reason: str, *, hint: str = "") -> HanseError:
    """The error for a masked sum that the site does not take part in."""
    return HanseError(ErrorCode.POLICY, f"the masked sum is refused: {reason}", hint=hint)
