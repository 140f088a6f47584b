"""The form of every value that is read from outside: a module of its own, since messages and job sections share it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value inside messages: immutable, strict about unknown fields, and about NaN where JSON has none."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
