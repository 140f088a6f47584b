"""A site's own privacy: what the worker does with `config["privacy"]`, which the datapod's budget has paid for.

Clipping and noise of a whole update, block by block: a block of float64 is all the memory that they need. The noise is
of the operating system's randomness: the same task done twice gives other bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import Field, ValidationError

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.base import Frozen
from hanse_fabric.messages.explained import explain
from hanse_fabric.tensors.layout import Layout, Rule
from hanse_privacy.noise.mechanisms import Gaussian, Laplace, Mechanism, add, clip_left
from hanse_privacy.noise.source import NoiseSource
from hanse_privacy.noise.staircase import Staircase

_BLOCK = 1 << 18
_EXACT = 4
"""Bytes of a number from which on rounding to it is less than what is taken off the clip."""


@dataclass(frozen=True, slots=True)
class DpSgd:
    """The settings of a round of `hanse_learning.site.dp_sgd`.

    Attributes:
        clip: L2 norm that each example's gradient, over all parameters together, is clipped to.
        scale: standard deviation of the noise on the sum.
        rate: probability of an example, or unit, to be in a batch.
        batch: expected size of a batch, which sums are divided by.
        steps: of the round.
        by_unit: whoever has examples is sampled and clipped with all of them.
    """

    clip: float
    scale: float
    rate: float
    batch: int
    steps: int
    by_unit: bool = False


class SitePrivacy(Frozen):
    """What the site does, as its budget has decided.

    Attributes:
        clip: norm that the update (dp_sgd: each example's gradient) is clipped to.
        scale: standard deviation, or scale, of the noise; 0: clipped only, the noise is added elsewhere.
        steps, batch, rate, by_unit: dp_sgd only.
        metrics: names of those that the datapod adds noise to; no others are told.
    """

    mechanism: Literal["dp_sgd", "gaussian", "laplace", "staircase", "discrete_gaussian", "discrete_laplace"]
    clip: float = Field(gt=0)
    scale: float = Field(ge=0)
    steps: int | None = Field(default=None, ge=1)
    batch: int | None = Field(default=None, ge=1)
    rate: float | None = Field(default=None, gt=0, le=1)
    by_unit: bool = False
    metrics: dict[str, float] = {}

    def covered(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Those metrics that get noise."""
        return {name: value for name, value in metrics.items() if name in self.metrics}

    def dp_sgd(self) -> DpSgd:
        """As `train_privately` takes them.

        Raises:
            HanseError: INVALID_INPUT where one of its numbers is missing.
        """
        if self.steps is None or self.batch is None or self.rate is None:
            raise invalid("privacy", self.mechanism, "dp_sgd with steps, batch and rate")
        return DpSgd(self.clip, self.scale, self.rate, self.batch, self.steps, self.by_unit)


def check_site_privacy(config: Mapping[str, Any]) -> SitePrivacy | None:
    """The task's section `privacy`; None where there is none.

    Raises:
        HanseError: INVALID_INPUT.
    """
    if not config.get("privacy"):
        return None
    try:
        return SitePrivacy.model_validate(dict(config["privacy"]))
    except ValidationError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"privacy: {explain(error)}") from None


def privatize(
    update: Mapping[str, np.ndarray], layout: Layout, terms: SitePrivacy, *, source: NoiseSource | None = None
) -> dict[str, np.ndarray]:
    """Clip an update to its norm, all entries together, and add noise; `update` may be written over.

    Raises:
        HanseError: INVALID_INPUT where something but parameters would travel; TRAINING_FAILED for values that are not
            finite.
    """
    require_parameters(layout)
    # Contiguous, so that flattening is a view: noise in a copy would be none.
    made = {entry.name: np.require(update[entry.name], requirements=("C", "W")) for entry in layout}
    arrays = [array.reshape(-1) for array in made.values()]
    normal = "gaussian" in terms.mechanism
    norm = norm_of(arrays, order=2 if normal else 1)
    if not math.isfinite(norm):
        raise HanseError(
            ErrorCode.TRAINING_FAILED, "the update has values that are not finite", hint="lower train.optimizer.lr"
        )
    mechanism = _mechanism(terms) if terms.scale else None
    clip = terms.clip if mechanism is None else clip_left(terms.clip, mechanism, sum(array.size for array in arrays))
    factor = min(1.0, clip / norm * (1 - 2.0**-20)) if norm else 1.0
    source = source or NoiseSource()
    for block in _blocks(arrays):
        values = block.astype(np.float64) * factor
        block[...] = values if mechanism is None else add(values, mechanism, source)
        if mechanism is None and block.itemsize < _EXACT:
            # Numbers of 16 bits are far apart near zero: rounded up, an update would be longer than its noise is for.
            np.copyto(block, np.nextafter(block, block.dtype.type(0)), where=np.abs(block) > np.abs(values))
    return made


def require_parameters(layout: Layout) -> None:
    """Refuse a layout of which something but parameters would travel.

    Raises:
        HanseError: INVALID_INPUT naming the entry.
    """
    for entry in layout:
        if entry.rule is not Rule.PARAMETER:
            raise invalid(
                f"model entry {entry.name}", entry.rule.value, "a parameter: others would leave without noise",
                hint='set model.buffers: {"*": keep_local}',
            )  # fmt: skip


def norm_of(arrays: list[np.ndarray], *, order: Literal[1, 2]) -> float:
    """L1 or L2 norm of all arrays (n,) together, in float64."""
    total = 0.0
    for block in _blocks(arrays):
        values = np.abs(block.astype(np.float64))
        total += float(np.dot(values, values) if order == 2 else values.sum())
    return math.sqrt(total) if order == 2 else total


def _mechanism(terms: SitePrivacy) -> Mechanism:
    """With a sensitivity of twice the clip: the update may have been any other one."""
    sensitivity = 2 * terms.clip
    match terms.mechanism:
        case "gaussian" | "discrete_gaussian":
            return Gaussian(terms.scale)
        case "laplace" | "discrete_laplace":
            return Laplace(terms.scale)
        case "staircase":
            return Staircase(sensitivity, sensitivity / terms.scale)
        case _:
            raise invalid("privacy.mechanism", terms.mechanism, "a mechanism for updates")


def _blocks(arrays: list[np.ndarray]) -> Iterator[np.ndarray]:
    for array in arrays:
        for start in range(0, len(array), _BLOCK):
            yield array[start : start + _BLOCK]
