"""What of a task goes beyond the project's terms, as the site has agreed to them: at every site, with a datapod and
without.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from hanse_fabric.messages import MaskingMode, Task, TaskKind
from hanse_schemas.terms import AT_DELTA, ProjectTerms, algorithm_of, within

HINT = "the project's owner keeps to the terms, or asks the sites to agree to others"
_OF_DATA = frozenset({TaskKind.TRAIN, TaskKind.EVALUATE, TaskKind.STUDY, TaskKind.PREPARE})
_TRAINING = frozenset({TaskKind.TRAIN, TaskKind.PREPARE})
"""What noise is added to in a job that trains with noise: sums of the columns, too."""


class Beyond(NamedTuple):
    """A rule of the terms, what the task asks, and what was agreed to."""

    rule: str
    value: object
    allowed: object


def beyond(
    terms: ProjectTerms, task: Task, *, protocols: Collection[str] = (), of_people: bool = True
) -> Beyond | None:  # fmt: skip
    """The first thing in which a task goes beyond terms; None: it is within them. Pure.

    Args:
        protocols: of many fine questions that the task asks, by name.
        of_people: whether the answer is about people, which a study's list of SNPs is not.
    """
    asked = terms.asked
    if task.project != terms.project:
        return Beyond("project", task.project, terms.project)
    if asked.workflows and task.workflow not in asked.workflows:
        return Beyond("workflows", task.workflow, asked.workflows)
    if task.kind is not TaskKind.INITIALIZE and task.peers < asked.minimum_sites:
        return Beyond("minimum_sites", f"a step of {task.peers}", f"at least {asked.minimum_sites}")
    if asked.algorithms and task.kind is TaskKind.TRAIN:
        name = "site code" if task.config.get("code") else algorithm_of(task.config.get("train") or {})
        if name not in asked.algorithms:
            return Beyond("algorithms", name, asked.algorithms)
    hidden = task.masking is not None and task.masking.mode is not MaskingMode.RING
    if asked.masked and task.kind in _OF_DATA and of_people and not hidden:
        return Beyond("masked", "an answer without masks", "masked sums")
    if asked.noise and task.kind in _TRAINING and task.privacy is None:
        return Beyond("noise", f"a task of kind {task.kind.value} without noise", "training with noise")
    if asked.epsilon is not None and task.privacy is not None:
        private = task.privacy.privacy
        epsilon = private.site_epsilon.get(task.participant, private.epsilon)
        if not within(epsilon, asked.epsilon, delta=private.delta):
            told = "no epsilon" if epsilon is None else f"{epsilon:g} at delta {private.delta:g}"
            return Beyond("epsilon", told, f"at most {asked.epsilon:g} at delta {AT_DELTA:g}")
    if asked.protocols is not None:
        more = sorted(set(protocols) - set(asked.protocols))
        if more:
            return Beyond("protocols", ", ".join(more), asked.protocols or "none")
    return None
