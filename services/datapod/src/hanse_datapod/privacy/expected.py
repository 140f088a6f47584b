"""What a whole run will be charged at a site, before it has begun."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hanse_datapod.policy.privacy import PrivacyPolicy
from hanse_datapod.privacy.charges import numbers_of
from hanse_datapod.privacy.metrics import covered_metrics
from hanse_datapod.privacy.preparation import preparation_noise
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import PrivacyTerms, Task, TaskKind
from hanse_learning.site.private_terms import terms_of_work
from hanse_privacy.accounting.events import ReleaseEvent
from hanse_privacy.accounting.plan import ReleasePlan

if TYPE_CHECKING:
    from hanse_privacy.ledger import Charge

_SIZED = frozenset({"dp_sgd", "staircase"})
"""Mechanisms whose charge depends on how many examples there are, or on how many numbers a model has."""


_READ = ("train", "evaluate")
"""Sections that say what rounds and evaluations cost."""


def stands_for_all(terms: PrivacyTerms, examples: int | None) -> bool:
    """Whether what `expected_charges` gives costs as much alone, and somewhat else beside other charges, also of the
    same run: of a preparation, or of metrics."""
    mechanism = terms.privacy.mechanism
    return mechanism in _SIZED and not (mechanism == "dp_sgd" and examples is not None)


def expected_charges(
    task: Task, terms: PrivacyTerms, rounds: int, policy: PrivacyPolicy, *, examples: int | None, units: int | None
) -> list[Charge] | None:
    """The charges of a run in which the site trains in so many rounds.

    Where the job gives its epsilon, noise is made such that the whole run costs that, whatever examples and numbers
    there are: one example, sampled always, and one number stand for all.

    Args:
        task: of the run.
        terms: the task's.
        examples, units: of the site's data; None: the charges may not depend on them.

    Returns:
        None where they would.

    Raises:
        HanseError: INVALID_INPUT for terms that no site can keep.
    """
    from hanse_privacy.ledger import Charge

    privacy = terms.privacy
    given = privacy.site_epsilon.get(task.participant, privacy.epsilon) is not None
    if stands_for_all(terms, examples) and not given:
        return None
    prepares = TaskKind.PREPARE.value in task.config.get("kinds", ())
    releases = _releases(
        task, terms, rounds, policy, examples=examples or 1, coordinates=lambda: 1,
        units=None if examples is None else units, prepares=prepares,
    )  # fmt: skip
    return [Charge(task.project, task.run, "check", event, count) for event, count in releases]


def plan_of(
    task: Task, terms: PrivacyTerms, policy: PrivacyPolicy, *, examples: int, model: Path | None, units: int | None
) -> ReleasePlan | None:
    """All that the run of its first charged task will release at this site, as far as that task says it; None where all
    is of one kind, or where the task does not say it.

    A hub that lies about it gains nothing: what is charged is what is asked, and a plan that is another only adds it up
    to more. Whether there is one depends on nothing that the site does not tell, for hubs hear how many entries its
    ledger has: a sample that is always of all examples makes steps and preparation one kind.
    """
    if model is None and terms.privacy.mechanism == "staircase":
        return None
    prepares = task.kind is TaskKind.PREPARE
    if prepares:
        follows = task.config.get("follows")
        if not isinstance(follows, Mapping):  # of a hub that does not say what comes after
            return None
        read = {name: told for name in _READ if isinstance(told := follows.get(name), Mapping)}
        task = task.model_copy(update={"config": {**task.config, **read}})
    note = f"{terms.privacy.mechanism}, {terms.privacy.placement}: all of the run"
    try:
        releases = _releases(
            task, terms, terms.rounds, policy, examples=examples,
            coordinates=None if model is None else partial(numbers_of, model), units=units, prepares=prepares,
        )  # fmt: skip
    except HanseError:  # what cannot be kept is refused where it is asked
        return ReleasePlan((), terms.rounds, note)
    return ReleasePlan.of(
        releases, terms.rounds, note, always=terms.privacy.mechanism == "dp_sgd" and len(releases) > 1
    )


def _releases(
    task: Task, terms: PrivacyTerms, rounds: int, policy: PrivacyPolicy, *, examples: int,
    coordinates: Callable[[], int] | None, units: int | None, prepares: bool,
) -> list[tuple[ReleaseEvent, int]]:  # fmt: skip
    """What so many rounds release, with the evaluations between them and the preparation before."""
    noise, _ = terms_of_work(
        terms, task.participant, task.config, examples=examples, coordinates=coordinates, units=units,
        accountant=policy.accountant,
    )  # fmt: skip
    times = 1 if noise.unit == "run" else rounds  # dp_ftrl is charged once
    found = [(event, count * times) for event, count in noise.charged]
    if prepares:
        drawn = preparation_noise(task.model_copy(update={"kind": TaskKind.PREPARE}), policy.accountant)
        found.append((drawn.event, 1))
    covered = [covered_metrics(task.model_copy(update={"kind": kind})) for kind in (TaskKind.TRAIN, TaskKind.EVALUATE)]
    for metrics, times in zip(covered, (rounds, _evaluations(task, rounds)), strict=True):
        if metrics is not None and times:
            found.append((ReleaseEvent("pure", metrics.asked.epsilon), times))
    return found


def _evaluations(task: Task, rounds: int) -> int:
    asked = task.config.get("evaluate") or {}
    every = asked.get("every", 1) if isinstance(asked, Mapping) else 0
    return -(-rounds // every) if isinstance(every, int) and every > 0 else 0
