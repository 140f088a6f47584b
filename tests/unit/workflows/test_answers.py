"""What an answer must look like: what does not is a failure of its participant, with the reason."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from hanse_fabric.messages import (
    INLINE_LIMIT,
    Masking,
    MaskingMode,
    ObjectRef,
    Outcome,
    Result,
    Ring,
    RingPlan,
    SealedSeed,
    TaskKind,
)
from hanse_workflows.answers import Terms, judge
from hanse_workflows.outcomes import Answer, Failure

RUN = "run000000001"
UPDATE = ObjectRef(digest="a" * 64, size=100)
TALLY = ObjectRef(digest="b" * 64, size=80)
PLAN = RingPlan(participants=3, default=Ring(bits=32, fraction=8, bound=1.0))


def masking(mode: MaskingMode) -> Masking:
    key = base64.b64encode(bytes(32)) if mode is MaskingMode.COMPENSATOR else None
    return Masking(mode=mode, session="r1-train", minimum=3, ring=PLAN, compensator=key)


def seed(participant: str) -> SealedSeed:
    signature = base64.b64encode(bytes(64))
    return SealedSeed(participant=participant, sealed=base64.b64encode(b"sealed"), tally=3, signature=signature)


def result(**changes: Any) -> Result:
    body: dict[str, Any] = {
        "task": "0" * 32, "project": "triage", "run": RUN, "step": "r1-train", "participant": "north",
        "outcome": Outcome.DONE, "update": UPDATE,
    }  # fmt: skip
    return Result(**(body | changes))


def terms(mode: MaskingMode | None = None, **changes: Any) -> Terms:
    return Terms(TaskKind.TRAIN, "triage", RUN, 1000, None if mode is None else masking(mode), **changes)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"seed": None}, "seed: none of this participant is given"),
        ({"seed": seed("south")}, "seed: none of this participant is given"),
        ({"examples": 5}, "given in clear in a masked answer"),
        ({"metrics": {"loss": 0.5}}, "given in clear in a masked answer"),
        ({"tally": None}, "tally: None is not a small object"),
        ({"tally": ObjectRef(digest="b" * 64, size=80, key="updates/x")}, "is not a small object"),
        ({"tally": ObjectRef(digest="b" * 64, size=INLINE_LIMIT + 1)}, "is not a small object"),
    ],
)
def test_a_masked_answer_that_cannot_be_summed_is_a_failure_with_its_reason(given: dict[str, Any], reason: str) -> None:
    whole = {"seed": seed("north"), "tally": TALLY}
    assert isinstance(judge(result(**whole), terms(MaskingMode.COMPENSATOR)), Answer)
    failure = judge(result(**(whole | given)), terms(MaskingMode.COMPENSATOR))
    assert isinstance(failure, Failure)
    assert reason in failure.reason


def test_a_pairwise_answer_needs_the_signature_over_its_members() -> None:
    failure = judge(result(tally=TALLY), terms(MaskingMode.PAIRWISE))
    assert isinstance(failure, Failure)
    assert "signature over its set of members" in failure.reason


@pytest.mark.parametrize(
    ("given", "wanted", "reason"),
    [
        ({"examples": 0}, {}, "examples: 0 is not a positive number"),
        ({"update": None}, {}, "update: none given, the train step needs one"),
        ({"update": ObjectRef(digest="a" * 64, size=1001)}, {}, "update.size: 1001 bytes are more than the 1000"),
        (
            {"update": ObjectRef(digest="a" * 64, size=9, key=f"updates/triage/{RUN}/{'c' * 64}")},
            {},
            "update.key: ",
        ),
        ({"update": ObjectRef(digest="a" * 64, size=1, inline=base64.b64encode(b"x"))}, {}, "update: given inline"),
        ({}, {"extras": ("control",)}, "extras: control is not given"),
        ({"extras": dict.fromkeys("abcde", UPDATE)}, {}, "extras: 5 are more than 4"),
        ({}, {"info": ("steps",)}, "info.steps: None is not a finite number"),
    ],
)
def test_a_plain_answer_that_cannot_be_reduced_is_a_failure_with_its_reason(
    given: dict[str, Any], wanted: dict[str, Any], reason: str
) -> None:
    assert isinstance(judge(result(examples=5), terms()), Answer)
    failure = judge(result(**({"examples": 5} | given)), terms(**wanted))
    assert isinstance(failure, Failure)
    assert reason in failure.reason


def test_a_site_that_refuses_or_fails_is_told_in_its_own_words_up_to_a_limit() -> None:
    told = judge(result(outcome=Outcome.REFUSED, code="policy", reason="x" * 900), terms())
    assert told == Failure(participant="north", outcome=Outcome.REFUSED, code="policy", reason="x" * 500)
