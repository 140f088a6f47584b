"""What an answer must look like: what does not is a failure of its participant, with the reason."""

from __future__ import annotations

import base64
from dataclasses import replace
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
from hanse_fabric.messages.objects import update_key
from hanse_workflows.answers import MOST_LETTERS, MOST_NUMBERS, Terms, judge, largest_update
from hanse_workflows.ask import Ask
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
        ({"counted": "7"}, "given in clear in a masked answer"),
        ({"tally": None}, "tally: None is not a small object"),
        ({"tally": ObjectRef(digest="b" * 64, size=80, key="updates/x")}, "is not a small object"),
        ({"tally": ObjectRef(digest="b" * 64, size=INLINE_LIMIT + 1)}, "is not a small object"),
        ({"tally": ObjectRef(digest="b" * 64, size=1, inline=base64.b64encode(b"x"))}, "is not a small object"),
        ({"update": None}, "update: none given, the train step needs one"),
        ({"update": ObjectRef(digest="a" * 64, size=1001)}, "update.size: 1001 bytes are more than the 1000"),
    ],
)
def test_a_masked_answer_that_cannot_be_summed_is_a_failure_with_its_reason(given: dict[str, Any], reason: str) -> None:
    whole = {"seed": seed("north"), "tally": ObjectRef(digest="b" * 64, size=INLINE_LIMIT)}
    assert isinstance(judge(result(**whole), terms(MaskingMode.COMPENSATOR)), Answer)
    failure = judge(result(**(whole | given)), terms(MaskingMode.COMPENSATOR))
    assert isinstance(failure, Failure)
    assert reason in failure.reason


def test_the_terms_of_a_step_are_what_it_asks_for_with_the_digest_of_the_jobs_code_where_it_has_some() -> None:
    def asked(**config: Any) -> Ask:
        return Ask(
            TaskKind.TRAIN, 1, ("north",), config, seed=lambda _: 0, model=None, needed=1, grace=None, deadline=60.0,
            retries=0, masking=masking(MaskingMode.RING), answered=("control",), info=("steps",),
        )  # fmt: skip

    for config, code in (({"code": {"digest": "d" * 64}}, "d" * 64), ({}, None), ({"code": None}, None)):
        wanted = terms(MaskingMode.RING, extras=("control",), info=("steps",), code=code)
        assert Terms.of(asked(**config), "triage", RUN, 1000) == wanted


@pytest.mark.parametrize("mode", [MaskingMode.PAIRWISE, MaskingMode.RING])
def test_only_a_compensator_needs_a_seed(mode: MaskingMode) -> None:
    payload = base64.b64encode(b"a signature")
    assert isinstance(judge(result(tally=TALLY, payload=payload), terms(mode)), Answer)


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


def test_what_a_site_says_of_its_failure_is_cut_to_so_many_letters() -> None:
    told = judge(result(outcome=Outcome.FAILED, code="c" * 65, reason="x" * 501), terms())
    assert told == Failure(participant="north", outcome=Outcome.FAILED, code="c" * 64, reason="x" * 500)
    wrong = judge(result(examples=5, update=UPDATE.model_copy(update={"key": "k" * 600})), terms())
    assert isinstance(wrong, Failure)
    assert (wrong.outcome, wrong.code, len(wrong.reason)) == (Outcome.FAILED, "invalid-input", 500)


def test_an_answer_has_what_its_kind_of_task_takes_and_nothing_else() -> None:
    whole = {
        "examples": 5, "metrics": {"loss": 0.5}, "extras": {"control": UPDATE}, "info": {"steps": 2.0},
        "code_digest": "d" * 64, "counted": "7", "payload": base64.b64encode(b"a message"), "tally": TALLY,
        "seed": seed("north"),
    }  # fmt: skip
    trained = judge(result(**whole), terms(code="d" * 64))
    assert trained == Answer(
        participant="north", examples=5, update=UPDATE, metrics={"loss": 0.5}, extras={"control": UPDATE},
        info={"steps": 2.0}, code_digest="d" * 64,
    )  # fmt: skip
    evaluated = judge(result(**whole), replace(terms(code="d" * 64), kind=TaskKind.EVALUATE))
    assert evaluated == Answer(
        participant="north", examples=5, metrics={"loss": 0.5}, info={"steps": 2.0}, code_digest="d" * 64, counted="7"
    )
    advertised = judge(result(**whole), replace(terms(), kind=TaskKind.ADVERTISE))
    assert isinstance(advertised, Answer)
    assert (advertised.payload, advertised.update) == (b"a message", None)
    masked = {"tally": TALLY, "payload": whole["payload"], "seed": seed("north")}
    pairwise = judge(result(**masked), terms(MaskingMode.PAIRWISE))
    assert isinstance(pairwise, Answer)
    assert (pairwise.tally, pairwise.payload, pairwise.update) == (TALLY, b"a message", UPDATE)
    summed = judge(result(**masked), terms(MaskingMode.COMPENSATOR))
    assert isinstance(summed, Answer)
    assert (summed.seed, summed.payload) == (seed("north"), None)


def test_an_answer_of_other_code_than_the_jobs_is_a_failure_and_of_none_or_the_jobs_is_not() -> None:
    for given, wanted in ((None, "d" * 64), (None, None), ("d" * 64, "d" * 64)):
        assert isinstance(judge(result(examples=5, code_digest=given), terms(code=wanted)), Answer)
    for wanted in (None, "e" * 64):
        failure = judge(result(examples=5, code_digest="d" * 64), terms(code=wanted))
        assert isinstance(failure, Failure)
        assert failure.reason == f"code_digest: {'d' * 64} is not that of the job's code, {wanted}"


def test_a_first_model_and_an_evaluation_need_no_examples_and_a_message_of_a_protocol_no_update() -> None:
    assert isinstance(judge(result(), replace(terms(), kind=TaskKind.INITIALIZE)), Answer)
    for mode in MaskingMode:
        assert isinstance(judge(result(), replace(terms(mode), kind=TaskKind.INITIALIZE)), Answer)
    assert isinstance(judge(result(update=None), replace(terms(), kind=TaskKind.EVALUATE)), Answer)
    assert isinstance(judge(result(examples=1), terms()), Answer)
    for kind in (TaskKind.ADVERTISE, TaskKind.SHARE, TaskKind.UNMASK, TaskKind.CHECK):
        payload = {"payload": base64.b64encode(b"a message")}
        assert isinstance(judge(result(update=None, **payload), replace(terms(), kind=kind)), Answer)
        failure = judge(result(), replace(terms(), kind=kind))
        assert isinstance(failure, Failure)
        assert failure.reason == f"payload: none given, the {kind.value} step needs one"


@pytest.mark.parametrize("what", ["metrics", "info"])
def test_as_many_numbers_and_letters_of_their_names_as_the_journal_has_room_for_are_taken(what: str) -> None:
    assert (MOST_NUMBERS, MOST_LETTERS) == (256, 8192)
    many = {f"m{number}": 0.5 for number in range(MOST_NUMBERS)}
    long = {"x" * MOST_LETTERS: 0.5}
    for numbers in (many, long):
        assert isinstance(judge(result(**{"examples": 5, what: numbers}), terms()), Answer)
    for numbers in (many | {"more": 0.5}, {"x" * (MOST_LETTERS + 1): 0.5}):
        failure = judge(result(**{"examples": 5, what: numbers}), terms())
        assert isinstance(failure, Failure)
        letters = sum(map(len, numbers))
        assert failure.reason.startswith(f"{what}: {len(numbers)} numbers whose names have {letters} letters")


def test_what_an_algorithm_needs_beside_the_update_is_taken_where_it_is_given() -> None:
    told = judge(result(examples=5, extras={"control": UPDATE}), terms(extras=("control",)))
    assert isinstance(told, Answer)
    assert told.extras == {"control": UPDATE}


def test_as_many_extras_of_as_long_names_as_the_journal_has_room_for_are_taken() -> None:
    assert isinstance(judge(result(examples=5, extras=dict.fromkeys("abcd", UPDATE)), terms()), Answer)
    assert isinstance(judge(result(examples=5, extras={"x" * 64: UPDATE}), terms()), Answer)
    failure = judge(result(examples=5, extras={"x" * 65: UPDATE}), terms())
    assert isinstance(failure, Failure)
    assert failure.reason == "extras: a name of more than 64 letters"


@pytest.mark.parametrize("what", ["update", "tally", "extras"])
def test_an_object_with_more_or_fewer_leaves_than_its_size_has_is_a_failure(what: str) -> None:
    def told(leaves: int) -> Answer | Failure:
        ref = ObjectRef(digest="a" * 64, size=100, leaves=("b" * 64,) * leaves)
        return judge(result(**{"examples": 5, what: {"control": ref} if what == "extras" else ref}), terms())

    assert isinstance(told(1), Answer)
    failure = told(2)
    assert isinstance(failure, Failure)
    assert failure.reason == "leaves: 2 of an object of 100 bytes, which has 1"


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_a_strategy_needs_is_finite(number: float) -> None:
    answer = judge(result(examples=5, info={"steps": 2.0}), terms(info=("steps",)))
    assert isinstance(answer, Answer)
    given = result(examples=5).model_copy(update={"info": {"steps": number}})
    failure = judge(given, terms(info=("steps",)))
    assert isinstance(failure, Failure)
    assert "is not a finite number" in failure.reason


def test_an_object_lies_where_its_own_task_puts_it_or_where_release_0_1_0_did_and_extras_do_too() -> None:
    own = update_key("triage", RUN, "north", "0" * 32, "a" * 64)
    former = f"updates/triage/{RUN}/{'a' * 64}"
    others = update_key("triage", RUN, "south", "0" * 32, "a" * 64)
    for key in (None, own, former):
        ref = UPDATE.model_copy(update={"key": key, "size": 1000})
        assert isinstance(judge(result(examples=5, update=ref, extras={"control": ref}), terms()), Answer)
    for changed in ({"key": others}, {"size": 1001}):
        ref = UPDATE.model_copy(update=changed)
        for given in ({"update": ref}, {"extras": {"control": ref}}):
            assert isinstance(judge(result(**{"examples": 5, **given}), terms()), Failure)


def test_an_update_may_be_a_tenth_and_64_kib_larger_than_its_model_and_twice_that_in_a_wide_ring() -> None:
    model = ObjectRef(digest="a" * 64, size=1000)
    assert largest_update(None, None, 77) == 77
    assert largest_update(model, None, 77) == 1100 + (64 << 10)
    assert largest_update(model, masking(MaskingMode.COMPENSATOR), 77) == 1100 + (64 << 10)
    for wide in (
        RingPlan(participants=3, default=Ring(bits=40, fraction=8, bound=1.0)),
        RingPlan(participants=3, default=PLAN.default, entries={"w": Ring(bits=64, fraction=8, bound=1.0)}),
    ):
        plan = masking(MaskingMode.COMPENSATOR).model_copy(update={"ring": wide})
        assert largest_update(model, plan, 77) == 2200 + (64 << 10)


@pytest.mark.parametrize(("bits", "more"), [(8, 800), (16, 1600), (32, 3200)])
def test_an_update_with_the_signs_of_its_numbers_may_be_larger_by_these(bits: int, more: int) -> None:
    """A model of numbers of 16 bits has 800 of them in 1600 bytes, and each sign takes so many bits."""
    plan = masking(MaskingMode.COMPENSATOR)
    plan = plan.model_copy(update={"ring": PLAN.model_copy(update={"signs": bits})})
    assert largest_update(ObjectRef(digest="a" * 64, size=1600), plan, 77) == 1760 + more + (64 << 10)
