"""What was asked, as one digest. A recorded outcome is an answer to the same question only.

It covers everything that the outcome depends on, and nothing else: no deadlines, no links, no traces, not where an
object rests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from hanse_fabric.canonical import canonical
from hanse_fabric.errors import ErrorCode
from hanse_workflows.failures import RunFailure

VERSION = 2
"""Raised where a fingerprint covers another set of things. A journal with fingerprints of another version is replayed
without comparing them: what it was made of is not known any more."""

_DOMAIN = b"hanse step\n"
_JOB_ID_DIGITS = 8


def fingerprint(asked: Mapping[str, Any]) -> str:
    """`<version>.<SHA-256>` of what was asked: JSON values, messages (by their fields), objects (by their digests).

    Raises:
        RunFailure: INVALID_INPUT for values of another kind, and for numbers that are not finite.
    """
    if isinstance(asked, StepQuestion):
        return asked.fingerprint
    try:
        text = canonical(asked)
    except (TypeError, ValueError) as error:
        raise RunFailure(ErrorCode.INVALID_INPUT, f"what a step asks has no fingerprint: {error}") from None
    return f"{VERSION}.{hashlib.sha256(_DOMAIN + text).hexdigest()}"


class StepQuestion(Mapping[str, Any]):
    """What a step asks, of which the fingerprint is taken once: a step asks it, and each of its jobs."""

    def __init__(self, asked: Mapping[str, Any]) -> None:
        self._asked = dict(asked)
        self.fingerprint = fingerprint(self._asked)

    def __getitem__(self, name: str) -> Any:
        return self._asked[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._asked)

    def __len__(self) -> int:
        return len(self._asked)


def comparable(one: str, other: str) -> bool:
    """Whether two fingerprints are of the same version, so that their difference says something."""
    return one.partition(".")[0] == other.partition(".")[0]


def short(mark: str) -> str:
    """The part of a fingerprint that stands in the id of an aggregators' job: 32 bits, beside the step's key."""
    return mark.partition(".")[2][:_JOB_ID_DIGITS]
