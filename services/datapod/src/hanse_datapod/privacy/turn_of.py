"""A site's part in a run whose noise is correlated over its rounds, which is charged once."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from hanse_datapod.privacy.shared_turns import is_shared, shared_terms
from hanse_fabric.errors import invalid
from hanse_fabric.messages import Task, TaskKind

if TYPE_CHECKING:
    from hanse_privacy.turns import Turn


def is_correlated(task: Task) -> bool:
    """Whether the task trains in such a run."""
    privacy = None if task.privacy is None else task.privacy.privacy
    return privacy is not None and privacy.min_separation is not None and task.kind is TaskKind.TRAIN


def turn_of(task: Task, folder: Path, home: str) -> Turn | None:
    """The site's part in a run whose noise is correlated over its rounds; None where it is not.

    Args:
        folder: of what this site's shares of such noise are made of.
        home: its name in a ledger that several share; else empty.
    """
    terms = task.privacy
    if terms is None or terms.privacy.min_separation is None or not is_correlated(task):
        return None
    from hanse_fabric.canonical import canonical
    from hanse_learning.binding import work_digest
    from hanse_privacy.turns import Turn

    if terms.round != task.round:
        raise invalid("privacy.round", terms.round, f"the task's, {task.round}")
    same = terms.model_dump(mode="json", include={"privacy", "rounds", "correlation"})
    work = work_digest(task)
    if is_shared(task):
        same |= shared_terms(task, folder)
        work = hashlib.sha256(work + "\n".join(terms.training).encode()).digest()
    return Turn(
        task.project, f"{task.run}{home}", task.round, terms.rounds, terms.privacy.min_separation,
        hashlib.sha256(canonical(same)).hexdigest(), work.hex(), trains=not terms.rests(task.participant),
    )  # fmt: skip
