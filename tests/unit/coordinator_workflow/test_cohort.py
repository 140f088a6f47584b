"""Who takes part in a round: the job's share of those present, and no more than a round can have."""

from __future__ import annotations

import pytest

from hanse_coordinator.workflow.failures import RunFailure
from hanse_coordinator.workflow.federated_averaging import LARGEST_COHORT, sample
from hanse_coordinator.workflow.journal import JournalEntry
from hanse_coordinator.workflow.outcomes import Answer, Gathered
from hanse_fabric.errors import ErrorCode
from hanse_fabric.job import Job
from hanse_fabric.messages import MAX_MESSAGE_BYTES, ObjectRef

CROWD = tuple(f"site-{number:05d}" for number in range(10_000))


def job(fraction: float) -> Job:
    participants = {"minimum": 2, "fraction": fraction}
    return Job.model_validate({"rounds": 3, "model": {"name": "logistic"}, "participants": participants})


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


def test_the_answers_of_the_largest_round_fit_one_entry_of_the_journal() -> None:
    names = CROWD[:LARGEST_COHORT]
    update, metrics = ObjectRef(digest="f" * 64, size=12_345), {"loss": 0.123456789012, "accuracy": 0.987654321098}
    answers = tuple(Answer(participant=name, examples=1000, update=update, metrics=metrics) for name in names)
    body = Gathered(asked=names, answers=answers).body()
    assert len(JournalEntry(epoch=1, kind="closed", step="r1-train", body=body).encode()) < MAX_MESSAGE_BYTES
