"""What a job asks of the device that a site trains on: `train.resources` of the job file.

A site refuses what it cannot meet; `prefer-gpu` alone falls back to the processor, which the owner is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.frozen import Frozen
from hanse_fabric.messages.explained import explain

FIELD = "resources"
"""Of the section `train`, for built-in trainers and for site code alike."""


class Resources(Frozen):
    """What one site's work needs.

    Attributes:
        device: `any`: the site chooses; `cpu`; `gpu`, without which the site refuses; `prefer-gpu`: one where there is
            one, else the processor, with a warning.
        memory_gib: GiB of the device's memory that are needed (of the worker's, where it is the processor).
        labels: that the site's pool must have.
    """

    device: Literal["any", "cpu", "gpu", "prefer-gpu"] = "any"
    memory_gib: float | None = Field(default=None, gt=0, le=1 << 20)
    labels: dict[str, str] = Field(default={}, max_length=16)

    @property
    def wants_gpu(self) -> bool:
        """Whether a GPU is asked for, strictly or not."""
        return self.device in ("gpu", "prefer-gpu")


def resources_of(config: Mapping[str, Any]) -> Resources:
    """What a task's `config` (or a job) asks; the default where it says nothing.

    Raises:
        HanseError: INVALID_INPUT naming the field, its value and what was expected.
    """
    train = config.get("train")
    body = train.get(FIELD) if isinstance(train, Mapping) else None
    if body is None:
        return Resources()
    try:
        return Resources.model_validate(body)
    except ValidationError as error:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"train.{FIELD}: {explain(error, Resources)}",
            hint="see docs/owner.md, section GPUs",
        ) from None
