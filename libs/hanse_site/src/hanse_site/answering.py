"""The answer to a task, before it is signed."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ObjectRef, Outcome, Result, Task


def result_for(
    task: Task,
    outcome: Outcome = Outcome.DONE,
    *,
    update: ObjectRef | None = None,
    examples: int = 0,
    metrics: Mapping[str, float] | None = None,
    seconds: float = 0.0,
    reason: str = "",
    code: str = "",
    code_digest: str | None = None,
    extras: Mapping[str, ObjectRef] | None = None,
    info: Mapping[str, float] | None = None,
    counted: str = "",
) -> Result:
    """The unsigned answer to a task.

    Raises:
        HanseError: TRAINING_FAILED when a metric, or a number in `info`, is not finite.
    """
    for name, value in (*(metrics or {}).items(), *(info or {}).items()):
        if not math.isfinite(value):
            raise HanseError(ErrorCode.TRAINING_FAILED, f"metric {name}: {value} is not a finite number")
    return Result(
        task=task.id,
        project=task.project,
        run=task.run,
        step=task.step,
        participant=task.participant,
        outcome=outcome,
        update=update,
        examples=examples,
        metrics=dict(metrics or {}),
        reason=reason[:2000],
        code=code,
        seconds=round(seconds, 6),
        code_digest=code_digest,
        extras=dict(extras) if extras else None,
        info=dict(info) if info else None,
        counted=counted or None,
    )
