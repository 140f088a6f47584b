"""Before a run, its owner is told where only noise keeps sums from telling single updates."""

from typing import Any

import pytest

from hanse_coordinator.api.submission import told_by_sums
from hanse_schemas.job import Job

MASKED = {"secure_aggregation": {"mode": "compensator"}}
CHANGING = {"participants": {"minimum": 3, "fraction": 0.9}}
NOISE = {"privacy": {"placement": "local", "mechanism": "gaussian", "clip": 1.0, "noise_multiplier": 1.0}}


def told(**sections: Any) -> tuple[str, ...]:
    return told_by_sums(Job.model_validate({"rounds": 2, "model": {"name": "linear"}} | sections))


@pytest.mark.parametrize("participants", [{"minimum": 3, "fraction": 0.9}, {"minimum": 3, "quorum": 0.8}])
def test_masked_rounds_whose_participants_change_need_noise_and_that_is_said(participants: dict[str, Any]) -> None:
    [warning] = told(**MASKED, participants=participants)
    assert "only noise" in warning


def test_where_all_sites_are_in_each_round_another_job_may_have_one_fewer_and_that_is_said() -> None:
    [warning] = told(**MASKED)
    assert "another that has one site more or fewer" in warning
    assert "only noise" in warning


@pytest.mark.parametrize("sections", [CHANGING, MASKED | NOISE, MASKED | CHANGING | NOISE, {
    "secure_aggregation": {"mode": "ring"}, **CHANGING,
}])  # fmt: skip
def test_nothing_is_said_where_noise_is_there_or_nothing_is_masked(sections: dict[str, Any]) -> None:
    assert told(**sections) == ()
