"""How a site's rate rises and falls, from round to round and from step to step within a round."""

from __future__ import annotations

import math

from hanse_learning.config.schedules import (
    AnySchedule,
    CosineConfig,
    DecayConfig,
    MilestonesConfig,
    PolynomialConfig,
)


def rate_factor(schedule: AnySchedule | None, round_number: int, step: int) -> float:
    """What the configured rate is multiplied by; above 0.

    Args:
        round_number, step: from 1; steps are those of the site within the round.
    """
    if schedule is None:
        return 1.0
    gone = (round_number if schedule.unit == "rounds" else step) - 1
    warm = min(1.0, (gone + 1) / (schedule.warm_up + 1))
    match schedule:
        case DecayConfig():
            falls = (round_number - 1) // schedule.every_rounds if schedule.every_rounds else 0
            falls += (step - 1) // schedule.every_steps if schedule.every_steps else 0
            return float(warm * schedule.factor**falls)
        case MilestonesConfig():
            return float(warm * schedule.factor ** sum(gone >= at for at in schedule.at))
        case CosineConfig() | PolynomialConfig():
            done = min(1.0, max(0, gone - schedule.warm_up) / (schedule.length - schedule.warm_up))
            power = schedule.power if isinstance(schedule, PolynomialConfig) else None
            left = (1 + math.cos(math.pi * done)) / 2 if power is None else (1 - done) ** power
            return float(warm * (schedule.floor + (1 - schedule.floor) * left))
