"""The job's sections `secure_aggregation` and `privacy`: their form. What they mean is `hanse_privacy`'s.

Everything here is checked without numpy, by the SDK and by the hub alike.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from hanse_fabric.frozen import Frozen
from hanse_fabric.names import Slug

LARGEST_WEIGHT = 1_000_000
"""Examples of one site, where the job does not say how many there can be."""


class SecureAggregation(Frozen):
    """Sums of which nobody sees the summands.

    Attributes:
        mode: `ring` is ring arithmetic without masks, for comparisons; `compensator` has a third party sum the masks;
            `pairwise` needs none.
        minimum: the sum of fewer participants is never made.
        bits: of the ring, 32 or 64; None: 64 where examples are weights and `largest_weight` is not given, else 32.
        bound: the largest absolute value of a coordinate of an update.
        buffer_bound: the same of averaged buffers (batch statistics).
        largest_weight: the largest number of examples of a site, where they are weights.
        metrics: the metrics whose means over all sites are made; others stay at the sites.
        rounding: to the nearest, or to either neighbour without bias.
        out_of_range: what a site does with a value beyond the bound.
        threshold: `pairwise`: how many must help to recover the masks of those who dropped out; None: two thirds.
    """

    mode: Literal["ring", "compensator", "pairwise"]
    minimum: int = Field(default=3, ge=1, le=1_000_000)
    bits: Literal[32, 64] | None = None
    bound: float = Field(default=8.0, gt=0, le=2.0**30)
    buffer_bound: float = Field(default=65_536.0, gt=0, le=2.0**40)
    largest_weight: int | None = Field(default=None, ge=1, le=2**40)
    metrics: tuple[str, ...] = Field(default=("loss", "accuracy", "matthews", "mse", "r2"), max_length=32)
    rounding: Literal["nearest", "stochastic"] = "nearest"
    out_of_range: Literal["clip", "refuse"] = "clip"
    threshold: int | None = Field(default=None, ge=2)

    @model_validator(mode="after")
    def _sound(self) -> SecureAggregation:
        if self.mode != "ring" and self.minimum < 3:
            raise ValueError(f"minimum: {self.minimum} is not at least 3: the sum of two tells each the other's")
        if self.threshold is not None and self.mode != "pairwise":
            raise ValueError(f"threshold belongs to mode pairwise, mode is {self.mode}")
        return self


class Privacy(Frozen):
    """Differential privacy of a run.

    Attributes:
        placement: `local`: each site makes its own answer private, by itself; `distributed`: each adds a share of the
            noise within the masked sum; `central`: the hub clips and adds noise, and is trusted with plain updates.
        mechanism: `dp_sgd` (local, per example, within training), or noise on the clipped update.
        clip: norm to which the update (dp_sgd: the gradient of each example) is clipped: L2 for Gaussian kinds, L1 for
            Laplace kinds and staircase.
        epsilon, delta: the whole run's guarantee; or
        noise_multiplier: noise per unit of `clip` (standard deviation for Gaussian, scale for the others) per round.
        adaptive_clip: central: the quantile of the updates' norms that the clipping norm is moved to; None: fixed.
        noise: distributed: how the sites' shares of it are made (docs/privacy.md).
        colluding: `distributed-gamma`: how many sites may collude, without the noise of the others becoming short.
        scale: `calibrated`, or `literal`: as Mugunthan (2022) prints it, of which the true epsilon is larger.
        site_epsilon: by participant, where it differs from `epsilon` (local placements; Mugunthan, 2022, Table 5.2).
    """

    placement: Literal["local", "distributed", "central"]
    mechanism: Literal["dp_sgd", "gaussian", "laplace", "staircase", "discrete_gaussian", "discrete_laplace"]
    clip: float = Field(default=1.0, gt=0, le=1e6)
    epsilon: float | None = Field(default=None, gt=0, le=1e6)
    delta: float = Field(default=1e-5, ge=0, lt=1)
    noise_multiplier: float | None = Field(default=None, gt=0, le=1e6)
    adaptive_clip: float | None = Field(default=None, gt=0, lt=1)
    noise: Literal["local-laplace", "distributed-gamma", "oblivious", "oblivious-shuffled"] | None = None
    colluding: int = Field(default=0, ge=0)
    scale: Literal["calibrated", "literal"] = "calibrated"
    site_epsilon: dict[Slug, float] = {}

    @model_validator(mode="after")
    def _determined(self) -> Privacy:
        if (self.epsilon is None) == (self.noise_multiplier is None):
            raise ValueError("give epsilon or noise_multiplier, one of them")
        return self
