"""The project's terms at the site: a task is done only under terms that somebody here has agreed to, and only as far as
these let it. So a hub that shows some terms and asks for something else is refused by what it has shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from hanse_datapod.policy.refusal import forbidden
from hanse_datapod.study.tasks import asks_for_snps
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import Frozen, Task, TaskKind
from hanse_learning.pooled.layout import counts_in
from hanse_learning.preparation.plan import classes_in
from hanse_schemas.prepare import rules_of
from hanse_schemas.protocols import asked_by, asked_by_counts
from hanse_schemas.terms import ProjectTerms
from hanse_site.consent import AgreedTerms, under
from hanse_site.within_terms import HINT, beyond


class TermsPolicy(Frozen):
    """What is done under terms that nobody here has agreed to: when a project's owner has changed them, for one.

    Attributes:
        changed: `refuse`: nothing, until somebody agrees; `keep`: what the terms that were agreed to last let.
    """

    changed: Literal["refuse", "keep"] = "refuse"


def terms_of(policy: TermsPolicy, agreed: Sequence[AgreedTerms], task: Task, *, begun: bool) -> ProjectTerms | None:
    """The terms that a task is held against; None: there are none.

    Args:
        begun: whether the task's run began here under the terms that it names.

    Raises:
        HanseError: POLICY where nobody here has agreed to those of the task, or to others since.
    """
    try:
        return under(agreed, task.terms, begun=begun)
    except HanseError:
        if policy.changed == "refuse":
            raise
    return agreed[-1].terms if agreed else None


def check_terms(terms: ProjectTerms | None, task: Task) -> None:
    """Whether a task is within terms.

    Raises:
        HanseError: POLICY.
    """
    if terms is None:
        return
    # Noise of which the terms do not say how much there is may be next to none.
    protocols = _protocols_of(task, trusted=terms.asked.epsilon is not None)
    found = beyond(terms, task, protocols=protocols, of_people=not asks_for_snps(task))
    if found is not None:
        raise forbidden(f"terms.{found.rule}", found.value, found.allowed, hint=HINT)


def _protocols_of(task: Task, *, trusted: bool) -> set[str]:
    """The protocols of many fine questions that a task asks; none of what is counted with noise that is `trusted`."""
    if task.kind is TaskKind.PREPARE:
        return set(asked_by(rules_of(task.config.get("prepare")), classes_in(task.config)))
    counts = counts_in(task.config) if task.kind is TaskKind.EVALUATE else None
    if counts is None:
        return set()
    groups, noisy = counts.groups if counts.subgroups is not None else 0, trusted and counts.scale is not None
    return set(asked_by_counts(counts.names, counts.bins, counts.classes, groups, noisy=noisy))
