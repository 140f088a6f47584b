"""What the verbs return, in the form in which it is recorded. Kept small: 1,000 answers fit one journal entry."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Self

from pydantic import Base64Bytes, Field

from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import Frozen, ObjectRef, Outcome, SealedSeed, Tally, TaskKind
from hanse_fabric.names import Digest, Slug

_FINAL = frozenset({ErrorCode.INVALID_INPUT.code})
"""Codes of failures that would be the same again: of a study, whose steps are functions of a site's files."""


_MOST_SAID = 20


class _Recorded(Frozen):
    def body(self) -> dict[str, Any]:
        """As it is recorded."""
        return self.model_dump(mode="json", exclude_defaults=True)

    @classmethod
    def of(cls, body: dict[str, Any]) -> Self:
        return cls.model_validate(body)


class Answer(_Recorded):
    """A participant's accepted answer. `examples` is what it counts for in means."""

    participant: Slug
    examples: int = 0
    update: ObjectRef | None = None
    metrics: dict[str, float] = {}
    code_digest: Digest | None = None
    tally: ObjectRef | None = None
    seed: SealedSeed | None = None
    payload: Base64Bytes | None = None
    payload_digest: Digest | None = None
    """Where the payload itself is not recorded (`Ask.keep`)."""
    extras: dict[str, ObjectRef] = {}
    info: dict[str, float] = {}
    counted: str = ""


class Failure(_Recorded):
    """A participant that answered, but not with a usable result: its trainer failed, or its policy refused."""

    participant: Slug
    outcome: Outcome
    code: str = ""
    reason: str = ""

    def final(self, kind: TaskKind) -> bool:
        """Whether it is in vain to ask this participant again for a task of this kind."""
        return self.outcome is Outcome.REFUSED or (kind in (TaskKind.STUDY, TaskKind.PREPARE) and self.code in _FINAL)


class Gathered(_Recorded):
    """The outcome of the verb `ask`, and of `gather`, which asks again. Answers are sorted by participant.

    Attributes:
        asked: who was sent the task.
        failures: who answered with a failure or refusal, and why.
        silent: who did not answer in time.
    """

    asked: tuple[Slug, ...]
    answers: tuple[Answer, ...] = ()
    failures: tuple[Failure, ...] = ()

    @property
    def silent(self) -> tuple[str, ...]:
        heard = {answer.participant for answer in self.answers} | {failure.participant for failure in self.failures}
        return tuple(name for name in self.asked if name not in heard)

    def digested(self) -> Gathered:
        """With digests in the payloads' stead."""
        answers = (
            answer.model_copy(update={"payload": None, "payload_digest": hashlib.sha256(answer.payload).hexdigest()})
            if answer.payload is not None
            else answer
            for answer in self.answers
        )
        return self.model_copy(update={"answers": tuple(answers)})

    def explain(self) -> str:
        """Who is missing, and why, in words. What several have said alike is said once."""
        alike: dict[str, list[str]] = {}
        for name in self.silent:
            alike.setdefault("silent", []).append(name)
        for failure in self.failures:
            said = f"{failure.outcome.value} ({failure.reason or failure.code or 'no reason given'})"
            alike.setdefault(said, []).append(failure.participant)
        shown = [f"{_listed(names)} {said}" for said, names in alike.items()]
        return "; ".join(shown[:_MOST_SAID]) + (f"; and {len(shown) - _MOST_SAID} more" if shown[_MOST_SAID:] else "")


class Reduction(_Recorded):
    """The outcome of `reduce`: the new model, the server optimizer's arrays, the algorithm's extras, whose updates are
    in all of them, the next round's clipping norm, where central privacy moves it, and the device that combined them,
    where it was not the aggregators' processors alone."""

    model: ObjectRef
    state: dict[str, ObjectRef] = {}
    extras: dict[str, ObjectRef] = {}
    participants: tuple[Slug, ...]
    refused: tuple[Slug, ...] = ()
    clip: float | None = None
    device: str | None = None


class Summed(_Recorded):
    """The outcome of `sum_masked`: the sum, or whose answers spoil it.

    Attributes:
        reduction: the new model; None where tallies alone were summed, or some were refused.
        tally: None where there is no sum.
        participants: whose masks the aggregators were given the sum of, whether or not they made something of it.
        refused: whose answers cannot be summed, so that there is none.
    """

    reduction: Reduction | None = None
    tally: Tally | None = None
    participants: tuple[Slug, ...] = ()
    refused: tuple[Slug, ...] = ()


class Computed(_Recorded):
    """The outcome of a study's joint computation.

    Attributes:
        outputs: the objects that were made.
        facts: small things that were found.
        refused: by participant, why its answer spoils the sum, so that there is none.
        lost: why the masks stay on this sum, though nobody's answer is to blame.
    """

    outputs: dict[str, ObjectRef] = {}
    facts: dict[str, Any] = {}
    refused: dict[Slug, str] = {}
    lost: str = ""

    @property
    def made(self) -> bool:
        return not self.refused and not self.lost


class Published(_Recorded):
    """The outcome of `publish`."""

    version: int = Field(ge=1)
    digest: Digest


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_SAID
    return ", ".join(names[:_MOST_SAID]) + (f" and {more} more" if more > 0 else "")
