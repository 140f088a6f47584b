"""A model's file under masks: one model has one, for the digest of its bytes is its name.

What a site remembers of masked work, and what others hold its sums against, is by that name. A hub that writes the file
of the same model in another way, with other spaces, keys in another order, or more metadata, would have its sums a
second time, without one site. And the names of its entries are of the hub's choice: none may be one that a masked file
has beside them.
"""

from __future__ import annotations

from pathlib import Path

from hanse_datapod.masking.plan import refused
from hanse_datapod.masking.remembered import hides
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Task, TaskKind

_NAMED_BY_IT = frozenset({TaskKind.TRAIN, TaskKind.EVALUATE})


def check_model_file(task: Task, model: Path | None) -> None:
    """Whether a masked task's model has no entry of a reserved name, and is in the one form that Hanse writes; a hub of
    release 0.1.0, which binds nothing, may have been given another form. Blocks.

    Raises:
        HanseError: POLICY where it is not, in words that are of the file alone.
    """
    if model is None or task.kind not in _NAMED_BY_IT or not hides(task):
        return
    from hanse_fabric.tensors.file import is_own, layout_of
    from hanse_privacy.ring.files import check_names

    try:
        check_names(layout_of(model))
        own = task.bound is None or is_own(model)
    except HanseError as error:
        if error.code is not ErrorCode.INVALID_INPUT:
            raise
        raise refused(f"model: {error.message}", hint=error.hint) from None
    if not own:
        raise refused(
            "model: its header is not written as Hanse writes it, and by another header the same model is another work",
            hint="write it with hanse_fabric.tensors; a hub writes a first model that is uploaded to it anew",
        )
