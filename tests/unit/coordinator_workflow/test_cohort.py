"""Who takes part in a round: the job's share of those present, and no more than a round can have."""

from __future__ import annotations

import base64

import pytest

from hanse_coordinator.workflow.failures import RunFailure
from hanse_coordinator.workflow.federated_averaging import LARGEST_COHORT, LARGEST_MASKED_COHORT, sample
from hanse_coordinator.workflow.journal import JournalEntry
from hanse_coordinator.workflow.outcomes import Answer, Gathered
from hanse_fabric.errors import ErrorCode
from hanse_fabric.job import Job
from hanse_fabric.messages import MAX_MESSAGE_BYTES, MaskShape, ObjectRef, SealedSeed

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


def test_of_masked_answers_a_round_can_have_fewer() -> None:
    masked = {"secure_aggregation": {"mode": "compensator"}}
    assert len(sample(CROWD, job(0.15, **masked), 1)) == LARGEST_MASKED_COHORT
    with pytest.raises(RunFailure, match=f"at most {LARGEST_MASKED_COHORT} can") as refusal:
        sample(CROWD, job(0.2, **masked), 1)
    assert "0.150" in refusal.value.hint


def test_the_answers_of_the_largest_masked_round_fit_one_entry_of_the_journal() -> None:
    names = CROWD[:LARGEST_MASKED_COHORT]
    ref, shape = ObjectRef(digest="f" * 64, size=12_345_678), MaskShape(u64=12_345, u32=12_345_678)
    signature, sealed = base64.b64encode(bytes(64)), base64.b64encode(bytes(117))
    answers = tuple(
        Answer(
            participant=name, examples=1000, update=ref, tally=ref,
            seed=SealedSeed(participant=name, sealed=sealed, update=shape, tally=100, signature=signature),
        )
        for name in names
    )  # fmt: skip
    body = Gathered(asked=names, answers=answers).body()
    assert len(JournalEntry(epoch=1, kind="closed", step="r1-train", body=body).encode()) < MAX_MESSAGE_BYTES


def test_the_answers_of_the_largest_round_fit_one_entry_of_the_journal() -> None:
    names = CROWD[:LARGEST_COHORT]
    update, metrics = ObjectRef(digest="f" * 64, size=12_345), {"loss": 0.123456789012, "accuracy": 0.987654321098}
    answers = tuple(Answer(participant=name, examples=1000, update=update, metrics=metrics) for name in names)
    body = Gathered(asked=names, answers=answers).body()
    assert len(JournalEntry(epoch=1, kind="closed", step="r1-train", body=body).encode()) < MAX_MESSAGE_BYTES
