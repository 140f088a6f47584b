"""What a task with privacy terms costs a home, and what its worker is told: clip and noise, from the very number that
is charged."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hanse_datapod.privacy.metrics import CoveredMetrics, covered_metrics
from hanse_datapod.privacy.preparation import is_private_preparation, preparation_noise, told_of
from hanse_datapod.privacy.reservation import Reservation
from hanse_datapod.privacy.turn_of import is_correlated
from hanse_fabric.errors import invalid
from hanse_fabric.messages import PrivacyTerms, Task, TaskKind
from hanse_learning.site.private_terms import terms_of_work
from hanse_privacy.accounting.accountant import AccountantName
from hanse_privacy.accounting.events import ReleaseEvent

if TYPE_CHECKING:
    from hanse_privacy.ledger import Charge

WHOLE_RUN = "whole run"
"""Names the one charge of a run whose noise is correlated over its rounds. It stays open to the run's end."""


def charges_of(
    task: Task, terms: PrivacyTerms, home: str, accountant: AccountantName, *, examples: int, model: Path | None,
    units: int | None,
) -> Reservation | None:  # fmt: skip
    """What a task will be charged, and what its worker is told then. None: nothing that it tells has noise.

    Args:
        terms: the task's.
        home: ends the names of its charges (`name_of`).
        examples: of the site's training data.
        model: the received model's file, whose size staircase noise depends on.
        units: who have the training data, where the project's schema says whose each example is.

    Raises:
        HanseError: INVALID_INPUT for terms that this site cannot keep.
    """
    covered = covered_metrics(task)
    prepares = is_private_preparation(task)
    evaluates = task.kind is TaskKind.EVALUATE and covered is not None
    if not (task.kind is TaskKind.TRAIN or prepares or evaluates):
        return None
    told: dict[str, Any] = {}
    charges: list[Charge] = []
    charge, placement = partial(_charge, task, terms.attempt, home), terms.privacy.placement
    if task.kind is TaskKind.TRAIN:
        noise, told = terms_of_work(
            terms, task.participant, task.config, examples=examples,
            coordinates=None if model is None else partial(numbers_of, model), units=units,
            accountant=accountant, ring=None if task.masking is None else task.masking.ring,
        )  # fmt: skip
        note = f"{noise.mechanism}, {placement}: {noise.multiplier:.6g} per clip of {noise.clip:g}"
        if noise.unit == "unit":
            note += ", for whoever has examples, with all of them"
        parts = zip(("", "/rounding"), noise.charged, strict=False)
        charges += [charge(event, count, note, part) for part, (event, count) in parts]
    if prepares:
        drawn = preparation_noise(task, accountant)
        charges.append(charge(drawn.event, 1, f"preparation, {placement}"))
        told = told_of(drawn, task)
    if covered is not None:
        _require_one_of_each(covered, units)
        charges.append(charge(ReleaseEvent("pure", covered.asked.epsilon), 1, covered.in_words, "/metrics"))
        told |= covered.told
    return Reservation(tuple(charges), told, covered)


def name_of(home: Path) -> str:
    """Ends the names of a home's charges in a ledger that it shares, for a hub may name two homes' work alike."""
    return f"/{hashlib.sha256(bytes(home.resolve())).hexdigest()[:16]}"


def numbers_of(model: Path) -> int:
    """How many numbers a model's file has."""
    from hanse_fabric.tensors.file import layout_of

    return sum(entry.count for entry in layout_of(model))


def _require_one_of_each(covered: CoveredMetrics, units: int | None) -> None:
    if covered.by_example and units is not None and covered.asked.bounds:
        raise invalid(
            "privacy.metrics",
            ", ".join(sorted(covered.asked.bounds)),
            "none with dp_sgd for units",
            hint="their noise hides one example, and a unit of the project's schema may have many; "
            "evaluate.metrics of counts hide a unit",
        )


def _charge(task: Task, attempt: int, home: str, event: ReleaseEvent, count: int, note: str, part: str = "") -> Charge:
    """What a task costs a home, or a part of it by a name of its own."""
    from hanse_privacy.ledger import Charge

    if is_correlated(task):
        return Charge(task.project, task.run, f"{WHOLE_RUN}{home}", event, count, note)
    session = task.masking.session if task.masking is not None else "plain"
    work = f"{task.step}/{attempt}/{session}/{task.id}{part}{home}"
    return Charge(task.project, task.run, work, event, count, note)
