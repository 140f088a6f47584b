"""Who takes part in a round: the job's share of those present, and no more than a round can have."""

from __future__ import annotations

import base64
import random
import re

import pytest

from hanse_coordinator.runs.journal import JournalEntry
from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import MAX_MESSAGE_BYTES, MaskShape, ObjectRef, SealedSeed
from hanse_schemas.job import Job
from hanse_workflows.attendance import LARGEST_COHORT, LARGEST_MASKED_COHORT, sample
from hanse_workflows.failures import RunFailure
from hanse_workflows.outcomes import Answer, Gathered

CROWD = tuple(f"site-{number:05d}" for number in range(10_000))


def job(fraction: float, **further: object) -> Job:
    participants = {"minimum": 2, "fraction": fraction}
    return Job.model_validate({"rounds": 3, "model": {"name": "logistic"}, "participants": participants} | further)


def test_a_round_samples_its_share_of_ten_thousand_each_time_others() -> None:
    rounds = [sample(CROWD, job(0.1), number) for number in range(1, 4)]
    assert [len(chosen) for chosen in rounds] == [1000] * 3
    assert rounds[0] == sample(CROWD, job(0.1), 1)
    assert len(set(rounds)) == 3


@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_more_than_a_round_can_have_are_refused_with_the_share_that_it_can(fraction: float) -> None:
    with pytest.raises(RunFailure, match=r"participants: \d+ of 10000") as refusal:
        sample(CROWD, job(fraction), 1)
    assert refusal.value.code is ErrorCode.TOO_LARGE
    assert "0.400" in refusal.value.hint


@pytest.mark.parametrize("present", [4_001, 6_789, 9_999, 12_347, 999_983])
def test_the_share_that_is_said_would_do(present: int) -> None:
    crowd = tuple(f"site-{number:06d}" for number in range(present))
    with pytest.raises(RunFailure) as refusal:
        sample(crowd, job(1.0), 1)
    said = re.search(r"0\.\d+", refusal.value.hint)
    assert said is not None
    assert 0.95 * LARGEST_COHORT < len(sample(crowd, job(float(said[0])), 1)) <= LARGEST_COHORT


def test_of_masked_answers_a_round_can_have_fewer() -> None:
    masked = {"secure_aggregation": {"mode": "compensator"}}
    assert len(sample(CROWD, job(0.25, **masked), 1)) == LARGEST_MASKED_COHORT
    with pytest.raises(RunFailure, match=f"at most {LARGEST_MASKED_COHORT} can") as refusal:
        sample(CROWD, job(0.3, **masked), 1)
    assert "0.250" in refusal.value.hint


CHANCE = random.Random(1)  # entries are deflated, so only what differs takes room
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


def names_of(count: int) -> tuple[str, ...]:
    return tuple(sorted({"s" + "".join(CHANCE.choices(LETTERS, k=62)) for _ in range(count)}))


def ref() -> ObjectRef:
    return ObjectRef(digest=CHANCE.randbytes(32).hex(), size=CHANCE.randrange(1 << 30))


def encoded_bytes(names: tuple[str, ...], answers: tuple[Answer, ...]) -> int:
    body = Gathered(asked=names, answers=answers).body()
    return len(JournalEntry(epoch=1, kind="closed", step="r1-train", body=body).encode())


def test_the_answers_of_the_largest_round_fit_one_entry_of_the_journal() -> None:
    names = names_of(LARGEST_COHORT)
    answers = tuple(
        Answer(
            participant=name, examples=CHANCE.randrange(10_000), update=ref(),
            metrics={f"metric-{index}": CHANCE.random() for index in range(8)},
        )
        for name in names
    )  # fmt: skip
    assert encoded_bytes(names, answers) < MAX_MESSAGE_BYTES


def test_the_answers_of_the_largest_masked_round_fit_one_entry_of_the_journal() -> None:
    names, shape = names_of(LARGEST_MASKED_COHORT), MaskShape(u64=12_345, u32=12_345_678)
    answers = tuple(
        Answer(
            participant=name, examples=CHANCE.randrange(10_000), update=ref(), tally=ref(),
            seed=SealedSeed(
                participant=name, sealed=base64.b64encode(CHANCE.randbytes(117)), update=shape, tally=100,
                signature=base64.b64encode(CHANCE.randbytes(64)),
            ),
        )
        for name in names
    )  # fmt: skip
    assert encoded_bytes(names, answers) < MAX_MESSAGE_BYTES
