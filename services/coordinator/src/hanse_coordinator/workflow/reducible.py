"""What a reduction takes beside the updates: another strategy than the job's, extras, numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hanse_fabric.messages import ObjectRef

Strategy = Callable[[int], dict[str, Any]]
"""The strategy of a reduction of so many updates."""


@dataclass(frozen=True, slots=True)
class Extra:
    """How an extra of the answers' is reduced: to the difference that it makes to `former`, or to zeros."""

    former: ObjectRef | None
    strategy: Strategy


@dataclass(frozen=True, slots=True)
class Reducible:
    """What a reduction takes beside the updates.

    Attributes:
        strategy: in place of the job's.
        extras: what else is reduced of the same answers, by name; equal weights.
        info: numbers of each answer's that the strategy needs.
    """

    strategy: Strategy | None = None
    extras: Mapping[str, Extra] = field(default_factory=dict)
    info: tuple[str, ...] = ()
