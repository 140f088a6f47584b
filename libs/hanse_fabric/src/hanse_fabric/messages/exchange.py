"""Sums inside a task: small arrays that all participants of a step contribute to, key by key."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Base64Bytes, Field

from hanse_fabric.frozen import Time
from hanse_fabric.messages.base import Message
from hanse_fabric.messages.masking import Ring
from hanse_fabric.names import RunId, Slug, StepKey
from hanse_fabric.strict_json import LARGE

EXCHANGE_LIMIT = 96 << 10
"""Bytes of an array that is exchanged: 12,288 numbers."""

END_KEY = "end"
"""The key that a participant contributes an empty array to when it needs no more sums."""


class ExchangeJob(Message):
    """Asks an aggregator to sum for a step's participants until all have contributed to END_KEY, or the deadline.

    Answered by a Reduced with neither outputs nor refusals; `error` says who was missing at the end.

    Attributes:
        patience: seconds that a participant waits for a sum; the session ends when nobody can be waiting for one that
            was begun. None: it stays open until the deadline.
        ring: contributions are elements of this ring of 64 bits, masked or not; None: float64.
    """

    schema_id: ClassVar[str] = "hanse.exchange_job/1"
    limits = LARGE

    id: StepKey
    project: Slug
    run: RunId
    step: StepKey
    participants: tuple[Slug, ...] = Field(min_length=1)
    deadline: Time
    patience: float | None = Field(default=None, gt=0)
    ring: Ring | None = None


class Contribution(Message):
    """A participant's part of one sum: little-endian float64 numbers, or uint64 ring elements."""

    schema_id: ClassVar[str] = "hanse.contribution/1"

    project: Slug
    run: RunId
    step: StepKey
    participant: Slug
    key: StepKey
    values: Base64Bytes = Field(max_length=EXCHANGE_LIMIT * 4 // 3 + 4)


class ExchangeSum(Message):
    """The sum for a key, or why there can be none."""

    schema_id: ClassVar[str] = "hanse.exchange_sum/1"

    project: Slug
    run: RunId
    step: StepKey
    key: StepKey
    values: Base64Bytes = b""
    error: str = ""
