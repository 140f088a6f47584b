"""Who was there at a step, recorded: the first time by names, then by who has come and gone; and who of them takes part
in a round: the one place where that is drawn.

Repeated at every round, the names of thousands would be most of a journal; those of very many are more than one entry
can hold.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any, Protocol

from hanse_fabric.errors import ErrorCode
from hanse_fabric.names import derive_seed
from hanse_schemas.job import Job
from hanse_workflows.failures import RunFailure
from hanse_workflows.quorum import too_few
from hanse_workflows.verbs import Body

NAMED_IN_FULL = 1_000
"""Up to so many are listed at every step, which is plain to read."""
_NAMED = 20
_PART = 12_000  # a name has at most 63 letters, so no entry is near a message's 1 MiB


class Once(Protocol):
    """`Verbs.once`."""

    async def __call__(self, key: str, asked: dict[str, Any], do: Callable[[], Awaitable[Body]], /) -> Body: ...


class Attendance:
    """The participants that were there, step by step, of one run."""

    def __init__(self, once: Once) -> None:
        self._once = once
        self._there: frozenset[str] = frozenset()

    async def at(self, step: str, look: Callable[[], Awaitable[Collection[str]]]) -> tuple[str, ...]:
        """Names, sorted, of those there at a step: as recorded, or as `look` finds them now.

        Every entry is a change of its own to who was there. A coordinator that is replaced between the parts of a step
        leaves the next one with fewer changes to record.
        """
        found: list[frozenset[str]] = []

        async def changes(number: int) -> Body:
            if not found:
                found.append(frozenset(await look()))
            if len(found[0]) <= NAMED_IN_FULL and number == 1:
                return {"present": sorted(found[0])}
            changed = sorted(found[0] ^ self._there)
            return {"changed": changed[:_PART], "more": len(changed) > _PART}

        for number in itertools.count(1):
            part = step if number == 1 else f"{step}-{number}"
            closed = await self._once(part, {"participants": number}, partial(changes, number))
            if "present" in closed:
                self._there = frozenset(closed["present"])
            else:
                self._there ^= frozenset(closed["changed"])
            if not closed.get("more"):
                break
        return tuple(sorted(self._there))


class EnrolledKeys:
    """The participants' enrolled keys, step by step, of one run. Nothing is recorded where nothing has changed."""

    def __init__(self, once: Once) -> None:
        self._once = once
        self._known: dict[str, str] = {}

    async def at(self, step: str, look: Callable[[], dict[str, bytes]]) -> dict[str, bytes]:
        """Raw Ed25519 keys by name: as recorded, or as `look` finds them now."""

        async def changes() -> Body:
            keys = {name: key.hex() for name, key in look().items()}
            return {} if keys == self._known else {"keys": keys}

        closed = await self._once(step, {"enrolled": "keys"}, changes)
        self._known = closed.get("keys", self._known)
        return {name: bytes.fromhex(key) for name, key in self._known.items()}


def refuse_strangers(step: str, strangers: Sequence[str]) -> None:
    """Refuse to ask whom nobody has enrolled: of such a site one would hear only that it is silent.

    Args:
        strangers: those of whom are asked that were never enrolled.

    Raises:
        RunFailure: INVALID_INPUT naming them, where there are any.
    """
    if strangers:
        named = ", ".join(map(repr, strangers[:_NAMED]))
        raise RunFailure(
            ErrorCode.INVALID_INPUT, f"step {step}: it asks {named}, and nobody of that name was ever enrolled here",
            hint="a workflow asks names that `participants` has returned",
        )  # fmt: skip


LARGEST_COHORT = 4_000
"""Participants of one round: their answers are one entry of the journal (deflated: 72 bytes each with two metrics, 215
with the longest names and eight), which is one message of the bus (1 MiB). Projects may have any number, of whom a
round samples its share."""
LARGEST_MASKED_COHORT = 2_500
"""The same where answers are masked: each has a sealed seed and a tally besides (300 bytes, at most 400)."""


def sample(
    present: tuple[str, ...], job: Job, number: int, *, resting: frozenset[str] = frozenset()
) -> tuple[str, ...]:
    """A round's participants, sorted: the job's share of those present, by the run's seed. Pure.

    Args:
        resting: who may not take part in this round.

    Raises:
        RunFailure: TOO_LARGE for more than a round can have; QUORUM where too few are not resting.
    """
    count = job.participants.sampled(len(present))
    most = LARGEST_COHORT if job.secure_aggregation is None else LARGEST_MASKED_COHORT
    if count > most:
        raise RunFailure(
            ErrorCode.TOO_LARGE,
            f"participants: {count} of {len(present)} would take part in a round, at most {most} can",
            hint=f"set participants.fraction to {math.floor(10_000 * most / len(present)) / 10_000:.4f} or less",
        )
    if resting:
        present = tuple(name for name in present if name not in resting)
        if len(present) < job.participants.minimum:
            raise too_few(
                f"round {number}", len(present), None, "of those present may take part again", job.participants.minimum,
                why=f"privacy.min_separation keeps {len(resting)} away",
                hint="enrol more participants, or lower participants.fraction, participants.minimum or min_separation",
            )  # fmt: skip
        count = min(count, len(present))
    if count == len(present):
        return present
    chooser = random.Random(derive_seed(job.seed, number, "sample"))  # noqa: S311 - repeatable, not secret
    return tuple(sorted(chooser.sample(present, count)))
