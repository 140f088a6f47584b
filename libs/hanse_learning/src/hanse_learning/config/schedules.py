"""The `schedule` of a job's `train` section: what the sites' rate is multiplied by, over rounds or within one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from hanse_fabric.errors import invalid
from hanse_fabric.messages.base import Frozen

_Count = Annotated[int, Field(ge=1, le=100_000_000)]
_Floor = Annotated[float, Field(gt=0, le=1)]


class _Schedule(Frozen):
    """What all schedules have.

    Attributes:
        unit: what is counted: rounds of the run, or steps of a site within each round.
        warm_up: so many at first have a rate that rises in equal parts to the configured one.
    """

    unit: Literal["rounds", "steps"] = "rounds"
    warm_up: int = Field(default=0, ge=0, le=100_000_000)

    def ends(self) -> Mapping[str, int]:
        """Settings that count rounds or steps from the beginning, by name."""
        return {"warm_up": self.warm_up}


class DecayConfig(_Schedule):
    """The rate is multiplied by `factor` after every so many rounds, and (within a round) steps.

    Attributes:
        factor: what the rate is multiplied by.
        every_rounds, every_steps: after how many it is; None: not by these.
    """

    name: Literal["decay"] = "decay"
    factor: float = Field(gt=0, le=1)
    every_rounds: int | None = Field(default=None, ge=1)
    every_steps: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _decays(self) -> DecayConfig:
        if self.every_rounds is None and self.every_steps is None:
            raise ValueError("give every_rounds, every_steps, or both")
        return self


class MilestonesConfig(_Schedule):
    """The rate is multiplied by `factor` after each of `at`.

    Attributes:
        at: rounds or steps, rising.
        factor: what the rate is multiplied by at each.
    """

    name: Literal["milestones"]
    at: tuple[_Count, ...] = Field(min_length=1, max_length=1000)
    factor: float = Field(default=0.1, gt=0, le=1)

    @model_validator(mode="after")
    def _rise(self) -> MilestonesConfig:
        if any(later <= earlier for earlier, later in zip(self.at, self.at[1:], strict=False)):
            raise ValueError(f"at: numbers that rise were expected, {list(self.at)} is given")
        return self

    def ends(self) -> Mapping[str, int]:
        return {"warm_up": self.warm_up, "at": self.at[-1]}


class _Falling(_Schedule):
    """The rate falls over `length`, warm-up included, to `floor` times the configured one, and stays there.

    Attributes:
        length: rounds or steps in which the rate falls.
        floor: what it stays at, in parts of the configured rate.
    """

    length: _Count
    floor: _Floor = 0.01

    @model_validator(mode="after")
    def _falls(self) -> _Falling:
        if self.warm_up >= self.length:
            raise ValueError(f"warm_up: fewer than the length {self.length} were expected, {self.warm_up} is given")
        return self

    def ends(self) -> Mapping[str, int]:
        return {"length": self.length - 1}


class CosineConfig(_Falling):
    """As half a wave of a cosine (Loshchilov and Hutter, 2017)."""

    name: Literal["cosine"]


class PolynomialConfig(_Falling):
    """As a power of what is left.

    Attributes:
        power: 1 is a straight line.
    """

    name: Literal["polynomial"]
    power: float = Field(default=1.0, gt=0, le=100)


def _name(given: Any) -> str:
    name = given.get("name", "decay") if isinstance(given, Mapping) else getattr(given, "name", "decay")
    return str(name)


AnySchedule = DecayConfig | MilestonesConfig | CosineConfig | PolynomialConfig
ScheduleConfig = Annotated[
    Annotated[DecayConfig, Tag("decay")]
    | Annotated[MilestonesConfig, Tag("milestones")]
    | Annotated[CosineConfig, Tag("cosine")]
    | Annotated[PolynomialConfig, Tag("polynomial")],
    Discriminator(_name),
]
"""Where no name is given: `decay`."""


def check_schedule(schedule: AnySchedule | None, rounds: int) -> None:
    """Refuse what would only come after the job's last round.

    Raises:
        HanseError: INVALID_INPUT.
    """
    if schedule is None or schedule.unit == "steps":
        return
    for name, last in schedule.ends().items():
        if last >= rounds:
            given = last + 1 if name == "length" else last
            expected = f"at most {rounds if name == 'length' else rounds - 1}, for the job has {rounds} rounds"
            raise invalid(f"train.schedule.{name}", given, expected, hint="raise rounds, or end the schedule earlier")
