"""The form of every value that is read from outside: a module of its own, since messages and job sections share it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value inside messages: immutable, strict about unknown fields, and about NaN where JSON has none."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _sensible(time: datetime) -> datetime:
    if not 1900 <= time.year < 3000:
        raise ValueError("a time between the years 1900 and 3000 is expected")
    return time


Time = Annotated[AwareDatetime, AfterValidator(_sensible)]
"""A moment: with its zone, for others cannot be compared; so near that sums and differences of it exist."""
