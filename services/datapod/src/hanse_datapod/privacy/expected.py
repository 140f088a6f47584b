"""What a whole run would be charged at a site, before it has begun."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hanse_datapod.policy.privacy import PrivacyPolicy
from hanse_datapod.privacy.metrics import covered_metrics
from hanse_datapod.privacy.preparation import preparation_noise
from hanse_fabric.messages import Task, TaskKind
from hanse_learning.site.private_terms import terms_of_work
from hanse_privacy.accounting.events import Event

if TYPE_CHECKING:
    from hanse_privacy.ledger import Charge

_SIZED = frozenset({"dp_sgd", "staircase"})
"""Mechanisms whose charge depends on how many examples there are, or on how many numbers a model has."""


def stands_for_all(task: Task, examples: int | None) -> bool:
    """Whether what `expected_charges` gives costs as much alone, and somewhat else beside other charges, also of the
    same run: of a preparation, or of metrics."""
    mechanism = None if task.privacy is None else task.privacy.privacy.mechanism
    return mechanism in _SIZED and not (mechanism == "dp_sgd" and examples is not None)


def expected_charges(
    task: Task, rounds: int, policy: PrivacyPolicy, *, examples: int | None, units: int | None
) -> list[Charge] | None:
    """The charges of a run in which the site trains in so many rounds.

    Where the job gives its epsilon, noise is made such that the whole run costs that, whatever examples and numbers
    there are: one example, sampled always, and one number stand for all.

    Args:
        task: of the run, with privacy terms.
        examples, units: of the site's data; None: the charges may not depend on them.

    Returns:
        None where they would.

    Raises:
        HanseError: INVALID_INPUT for terms that no site can keep.
    """
    from hanse_privacy.ledger import Charge

    if task.privacy is None:
        return []
    privacy = task.privacy.privacy
    given = privacy.site_epsilon.get(task.participant, privacy.epsilon) is not None
    known = examples is not None and privacy.mechanism == "dp_sgd"
    if stands_for_all(task, examples) and not given:
        return None
    noise, _ = terms_of_work(
        task.privacy, task.participant, task.config, examples=examples or 1, coordinates=lambda: 1,
        units=units if known else None, accountant=policy.accountant,
    )  # fmt: skip
    times = 1 if noise.unit == "run" else rounds  # dp_ftrl is charged once
    charges = [Charge(task.project, task.run, "check", event, count * times) for event, count in noise.charged]
    if TaskKind.PREPARE.value in task.config.get("kinds", ()):
        drawn = preparation_noise(task.model_copy(update={"kind": TaskKind.PREPARE}), policy.accountant)
        charges.append(Charge(task.project, task.run, "check", drawn.event))
    covered = [covered_metrics(task.model_copy(update={"kind": kind})) for kind in (TaskKind.TRAIN, TaskKind.EVALUATE)]
    for metrics, times in zip(covered, (rounds, _evaluations(task, rounds)), strict=True):
        if metrics is not None and times:
            charges.append(Charge(task.project, task.run, "check", Event("pure", metrics.asked.epsilon), times))
    return charges


def _evaluations(task: Task, rounds: int) -> int:
    every = (task.config.get("evaluate") or {}).get("every", 1)
    return -(-rounds // every) if isinstance(every, int) and every > 0 else 0
