"""How a site's rate falls, from round to round and from step to step within a round."""

from __future__ import annotations

from hanse_learning.config import ScheduleConfig


def rate_factor(schedule: ScheduleConfig | None, round_number: int, step: int) -> float:
    """What the configured rate is multiplied by; 1 in the first steps.

    Args:
        round_number, step: from 1.
    """
    if schedule is None:
        return 1.0
    falls = (round_number - 1) // schedule.every_rounds if schedule.every_rounds else 0
    falls += (step - 1) // schedule.every_steps if schedule.every_steps else 0
    return float(schedule.factor**falls)
