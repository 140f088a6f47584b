"""The project's terms at the site: a task is done only under terms that somebody here has agreed to, and only as far as
these let it. So a hub that shows some terms and asks for something else is refused by what it has shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from hanse_datapod.policy.refusal import forbidden
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import Frozen, MaskingMode, Task, TaskKind
from hanse_learning.pooled.layout import counts_in
from hanse_learning.preparation.plan import classes_in
from hanse_schemas.prepare import rules_of
from hanse_schemas.protocols import asked_by, asked_by_counts
from hanse_schemas.terms import ProjectTerms, algorithm_of, within
from hanse_site.consent import Agreement, under

_ASK = "the project's owner keeps to the terms, or asks the sites to agree to others"
_OF_DATA = frozenset({TaskKind.TRAIN, TaskKind.EVALUATE, TaskKind.STUDY, TaskKind.PREPARE})


class TermsPolicy(Frozen):
    """What is done under terms that nobody here has agreed to: when a project's owner has changed them, for one.

    Attributes:
        changed: `refuse`: nothing, until somebody agrees; `keep`: what the terms that were agreed to last let.
    """

    changed: Literal["refuse", "keep"] = "refuse"


def check_terms(policy: TermsPolicy, agreed: Sequence[Agreement], task: Task) -> None:
    """Whether a task is within what the site has agreed to.

    Raises:
        HanseError: POLICY.
    """
    try:
        terms = under(agreed, task.terms)
    except HanseError:
        if policy.changed == "refuse":
            raise
        terms = agreed[-1].terms if agreed else None
    if terms is not None:
        _check(terms, task)


def _check(terms: ProjectTerms, task: Task) -> None:
    asked = terms.asked

    def refuse(rule: str, value: object, allowed: object) -> HanseError:
        return forbidden(f"terms.{rule}", value, allowed, hint=_ASK)

    if task.project != terms.project:
        raise refuse("project", task.project, terms.project)
    if asked.workflows and task.workflow not in asked.workflows:
        raise refuse("workflows", task.workflow, asked.workflows)
    if task.kind is not TaskKind.INITIALIZE and task.peers < asked.minimum_sites:
        raise refuse("minimum_sites", f"a step of {task.peers}", f"at least {asked.minimum_sites}")
    if asked.algorithms and task.kind is TaskKind.TRAIN:
        name = "site code" if task.config.get("code") else algorithm_of(task.config.get("train") or {})
        if name not in asked.algorithms:
            raise refuse("algorithms", name, asked.algorithms)
    if asked.masked and task.kind in _OF_DATA and (task.masking is None or task.masking.mode is MaskingMode.RING):
        raise refuse("masked", "an answer without masks", "masked sums")
    if asked.noise and task.kind is TaskKind.TRAIN and task.privacy is None:
        raise refuse("noise", "training without noise", "training with noise")
    if asked.epsilon is not None and task.privacy is not None:
        private = task.privacy.privacy
        epsilon = private.site_epsilon.get(task.participant, private.epsilon)
        if not within(epsilon, asked.epsilon):
            raise refuse("epsilon", "no epsilon" if epsilon is None else epsilon, f"at most {asked.epsilon:g}")
    if asked.protocols is not None:
        more = tuple(sorted(_protocols_of(task) - set(asked.protocols)))
        if more:
            raise refuse("protocols", ", ".join(more), asked.protocols or "none")


def _protocols_of(task: Task) -> set[str]:
    """The protocols of many fine questions that a task asks."""
    if task.kind is TaskKind.PREPARE:
        return set(asked_by(rules_of(task.config.get("prepare")), classes_in(task.config)))
    counts = counts_in(task.config) if task.kind is TaskKind.EVALUATE else None
    if counts is None:
        return set()
    groups = counts.groups if counts.subgroups is not None else 0
    return set(asked_by_counts(counts.names, counts.bins, counts.classes, groups, noisy=counts.scale is not None))
