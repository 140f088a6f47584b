"""Which steps have sums in the middle, and who is left when one was not made."""

from __future__ import annotations

from typing import Any

import pytest

from hanse_fabric.messages import Outcome
from hanse_schemas.job import Job, check_job
from hanse_workflows.gathering import patience_of, remaining
from hanse_workflows.outcomes import Answer, Failure, Gathered


def job_of(**changes: Any) -> Job:
    return check_job({"rounds": 1, "participants": {"minimum": 2}} | changes)


@pytest.mark.parametrize(
    ("model", "train", "patience"),
    [
        ({"batch_norm": True}, {"algorithm": "fedtan"}, 60.0),
        ({"batch_norm": False}, {"algorithm": "fedtan"}, None),
        ({"batch_norm": True}, {"algorithm": {"name": "fedavg"}}, None),
        ({"batch_norm": True}, {}, None),
    ],
)
def test_only_batch_statistics_are_summed(model: dict[str, Any], train: dict[str, Any], patience: float | None) -> None:
    assert patience_of(job_of(model={"name": "mlp"} | model, train=train), 1) == patience


def test_the_silent_are_who_the_others_waited_for_unless_somebody_failed() -> None:
    def gathered(answers: str, **codes: str) -> Gathered:
        return Gathered(
            asked=tuple("abcd"), answers=tuple(Answer(participant=name) for name in answers),
            failures=tuple(Failure(participant=n, outcome=Outcome.FAILED, code=c) for n, c in codes.items()),
        )  # fmt: skip

    assert remaining(gathered("", a="quorum", b="quorum", c="quorum")) == ("a", "b", "c")
    assert remaining(gathered("a", b="training-failed")) == ("a", "c", "d")
    assert remaining(gathered("", a="quorum", b="training-failed")) == ("a", "c", "d")
    assert remaining(gathered("abc")) == ("a", "b", "c")
    assert remaining(gathered("", a="quorum", b="quorum", c="quorum", d="quorum")) == ("a", "b", "c", "d")
