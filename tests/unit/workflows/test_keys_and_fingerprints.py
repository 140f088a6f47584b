"""Keys of steps, and fingerprints of what they ask: their text is in journals and in names of jobs, so it stays."""

from __future__ import annotations

import pytest

from hanse_fabric.errors import ErrorCode
from hanse_workflows import RunFailure
from hanse_workflows.fingerprint import VERSION, StepQuestion, comparable, fingerprint, short
from hanse_workflows.keys import UsedKeys, attempt_key, session_key

ASKED = {"b": ["x"], "a": 1}
GOLDEN = "2.cdca088f81876fef782d1cec2b14eab8d8e5c751c14000053ca2e735e794e8c3"


def test_the_first_attempt_and_session_have_the_steps_key_and_later_ones_their_number() -> None:
    assert [attempt_key("r1-reduce", number) for number in (1, 2, 10)] == ["r1-reduce", "r1-reduce-a2", "r1-reduce-a10"]
    assert [session_key("r1-train", number) for number in (1, 2, 10)] == ["r1-train", "r1-train-s2", "r1-train-s10"]


def test_a_fingerprint_has_golden_text() -> None:
    assert fingerprint(ASKED) == GOLDEN
    assert GOLDEN.startswith(f"{VERSION}.")
    assert short(GOLDEN) == GOLDEN[2:10]


def test_a_question_is_what_it_asks_and_its_fingerprint_is_taken_once() -> None:
    given = dict(ASKED)
    question = StepQuestion(given)
    given["a"] = 2
    assert (dict(question), len(question)) == (ASKED, 2)
    assert fingerprint(question) == question.fingerprint == GOLDEN
    question.fingerprint = "2.kept"
    assert fingerprint(question) == "2.kept"


def test_fingerprints_of_one_version_are_compared_and_others_are_not() -> None:
    assert comparable("2.aa", "2.ab")
    assert not comparable("1.aa", "2.aa")
    assert not comparable("12.aa", "2.aa")


def test_a_key_is_used_once_whatever_it_asks() -> None:
    for again in ("2.aa", "2.ab"):
        used = UsedKeys()
        used.use("r1-train", "2.aa")
        with pytest.raises(RunFailure, match=rf"step r1-train: .* used this key already.* 2\.aa.* {again}") as raised:
            used.use("r1-train", again)
        assert raised.value.code is ErrorCode.STEP_CHANGED
        used.use("r1-train-a2", "2.aa")


@pytest.mark.parametrize("recorded", [None, "2.aa", "1.bb", "3.bb"])
def test_a_recorded_outcome_of_the_same_question_or_of_another_version_is_taken(recorded: str | None) -> None:
    UsedKeys().use("r1-train", "2.aa", recorded)


def test_a_recorded_outcome_of_another_question_ends_the_run_and_leaves_the_key_unused() -> None:
    used = UsedKeys()
    with pytest.raises(
        RunFailure, match=r"step r1-train: .*fingerprint 2\.bb, the workflow asks now for 2\.aa"
    ) as raised:
        used.use("r1-train", "2.aa", "2.bb")
    assert raised.value.code is ErrorCode.STEP_CHANGED


@pytest.mark.parametrize("key", ["r", "r1-p2-train", "0", "r" * 64, "a-"])
def test_a_key_of_lower_case_letters_digits_and_hyphens_is_taken(key: str) -> None:
    UsedKeys().use(key, "2.aa")


@pytest.mark.parametrize("key", ["", "-r", "R1", "r" * 65, "r_1", "r1\n", "r 1"])
def test_another_key_is_refused_before_anything_is_asked(key: str) -> None:
    with pytest.raises(RunFailure, match="a key has 1 to 64 lower-case letters") as raised:
        UsedKeys().use(key, "2.aa")
    assert raised.value.code is ErrorCode.INVALID_INPUT
