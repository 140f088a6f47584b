"""The `augmentation` of a job's `train` section: what images are changed by at random, before each step."""

from __future__ import annotations

from pydantic import Field, model_validator

from hanse_fabric.messages.base import Frozen


class AugmentationConfig(Frozen):
    """Random changes of training images; each example has its own, anew in each step.

    Attributes:
        crop: images are padded by so many zeros on each side, and a part of the first size is taken of that.
        flip: probability that left and right are exchanged.
        color: brightness and contrast are multiplied by a number within 1 - color and 1 + color each.
        cutout: side of a square that is set to zero, in pixels (DeVries and Taylor, 2017).
        copies: with dp_sgd, an example's gradient is the mean over so many copies, of which the first is the example as
            it is, and is clipped then (augmentation multiplicity: De et al., 2022). It costs no privacy, but time.
    """

    crop: int = Field(default=0, ge=0, le=1024)
    flip: float = Field(default=0.0, ge=0, le=1)
    color: float = Field(default=0.0, ge=0, le=1)
    cutout: int = Field(default=0, ge=0, le=1024)
    copies: int = Field(default=1, ge=1, le=64)

    @model_validator(mode="after")
    def _changes(self) -> AugmentationConfig:
        if not (self.crop or self.flip or self.color or self.cutout):
            raise ValueError("give crop, flip, color or cutout; without one nothing is changed")
        return self
