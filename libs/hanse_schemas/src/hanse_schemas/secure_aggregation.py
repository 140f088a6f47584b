"""The job's section `secure_aggregation`: its form. What it means is `hanse_privacy`'s."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from hanse_fabric.frozen import Frozen
from hanse_schemas.metrics import METRICS

ServiceName = Annotated[str, Field(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$")]
LARGEST_WEIGHT = 1_000_000
"""Examples of one site, where the job does not say how many there can be."""


class SecureAggregation(Frozen):
    """Sums of which nobody sees the summands.

    Attributes:
        mode: `ring` is ring arithmetic without masks, for comparisons; `compensator` has a third party sum the masks;
            `pairwise` needs none.
        minimum: the sum of fewer participants is never made.
        bits: of the ring of parameters, 8, 16, 32, 48 or 64 (buffers and the tally have 64); None: 64 where examples
            are weights and `largest_weight` is not given, or 48 where these have the same sums, else 32.
        bound: the largest absolute value of a coordinate of an update.
        buffer_bound: the same of averaged buffers (batch statistics).
        largest_weight: the largest number of examples of a site, where they are weights.
        metrics: the metrics whose means over all sites are made; others stay at the sites.
        rounding: to the nearest, or to either neighbour without bias.
        rotate: true rotates updates at random first, so that their numbers are alike in size: then a bound that is many
            times smaller cuts nothing, and rings of few bits have finer steps. `bound` is of rotated numbers.
        out_of_range: what a site does with a value beyond the bound.
        threshold: `pairwise`: how many must help to recover the masks of those who dropped out; None: two thirds, or
            more where `minimum` and `colluding` need it.
        colluding: `pairwise`: how many sites may collude with the hub, as the sites' policies have it.
        compensators: `compensator`: several, by the names under which they are announced, who share the masks.
        needed: how many of them sum the masks; fewer learn nothing, and more than half are needed.
    """

    mode: Literal["ring", "compensator", "pairwise"]
    minimum: int = Field(default=3, ge=1, le=1_000_000)
    bits: Literal[8, 16, 32, 48, 64] | None = None
    bound: float = Field(default=8.0, gt=0, le=2.0**30)
    buffer_bound: float = Field(default=65_536.0, gt=0, le=2.0**40)
    largest_weight: int | None = Field(default=None, ge=1, le=2**40)
    metrics: tuple[str, ...] = Field(default=tuple(METRICS), max_length=32)
    rounding: Literal["nearest", "stochastic"] = "nearest"
    rotate: bool | None = None
    out_of_range: Literal["clip", "refuse"] = "clip"
    threshold: int | None = Field(default=None, ge=2)
    colluding: int | None = Field(default=None, ge=0)
    compensators: tuple[ServiceName, ...] | None = Field(default=None, min_length=2, max_length=7)
    needed: int | None = Field(default=None, ge=2, le=7)

    @model_validator(mode="after")
    def _sound(self) -> SecureAggregation:
        if self.mode != "ring" and self.minimum < 3:
            raise ValueError(f"minimum: {self.minimum} is not at least 3: of two, each could work out the other's")
        for name in ("threshold", "colluding"):
            if getattr(self, name) is not None and self.mode != "pairwise":
                raise ValueError(f"{name} belongs to mode pairwise, mode is {self.mode}")
        self._check_compensators()
        return self

    def _check_compensators(self) -> None:
        if self.compensators is None and self.needed is None:
            return
        if self.mode != "compensator":
            raise ValueError(f"compensators and needed belong to mode compensator, mode is {self.mode}")
        if self.compensators is None or self.needed is None:
            missing = "compensators" if self.compensators is None else "needed"
            raise ValueError(f"{missing}: none given; compensators and needed belong together")
        count = len(self.compensators)
        if len(set(self.compensators)) < count:
            raise ValueError(f"compensators: {', '.join(self.compensators)}; each is named once")
        if self.needed > count:
            raise ValueError(f"needed: {self.needed} of {count} compensators; at most all of them are needed")
        if 2 * self.needed <= count:
            raise ValueError(
                f"needed: {self.needed} of {count} compensators; more than half are, or two halves could sum different "
                "sets"
            )
