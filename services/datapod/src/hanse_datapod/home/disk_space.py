"""Disk space at the site, looked at before the work: a full disk is a refusal, not a failure in the middle."""

from __future__ import annotations

import shutil
from pathlib import Path

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Task, TaskKind

MARGIN = 128 << 10
STUDY_MARGIN = 32 << 20


def needed_for(task: Task) -> int:
    """Bytes that a task may write: the model, the update, personal layers that are kept, the extras and what is kept of
    them, and the masked update, whose elements may be wider than the model's.
    """
    if task.kind is TaskKind.STUDY:
        # The size of a step's output is not known before; it is mostly smaller than the objects that it is given.
        return STUDY_MARGIN + 3 * sum(ref.size for ref in (task.extras or {}).values())
    size = task.model.size if task.model is not None else 0
    if task.kind is not TaskKind.TRAIN:
        return MARGIN + size
    masked = task.masking.ring.default.bits // 16 if task.masking is not None else 0
    return MARGIN + size * (3 + masked + 3 * len(task.extras or {}))


def require_space(folder: Path, needed: int) -> None:
    """Refuse when `folder`'s disk has fewer than `needed` bytes free.

    Raises:
        HanseError: NO_SPACE naming folder, bytes needed and bytes free.
    """
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise HanseError(
            ErrorCode.NO_SPACE,
            f"{folder}: the task needs {needed} bytes of disk, {free} are free",
            hint="free space on the site's volume",
        )
