"""Minimum, quorum and thresholds: by job, members and who is gone, whether a round can end, and why not."""

from __future__ import annotations

from typing import Any

import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import TaskKind
from hanse_fabric.messages.privacy import Privacy
from hanse_schemas.job import check_job
from hanse_workflows.quorum import (
    Quorum,
    check_masks,
    counted,
    least_members,
    most_within,
    quorum_of,
    threshold_wanted,
    too_few,
)

PLAIN: dict[str, Any] = {"rounds": 1, "model": {"name": "linear"}}
HALF = PLAIN | {"participants": {"minimum": 2, "quorum": 0.5}}
MASKED = {"secure_aggregation": {"mode": "compensator"}}
PAIRWISE = {"secure_aggregation": {"mode": "pairwise"}}
STUDY: dict[str, Any] = {
    "workflow": "association_study", "study": {"test": "logistic"}, "participants": {"minimum": 3},
    "secure_aggregation": {"mode": "pairwise"},
}  # fmt: skip
CORRELATED = {"matrix": {"name": "banded", "bands": 1}, "min_separation": 1}


@pytest.mark.parametrize(
    ("job", "members", "gone", "why_not"),
    [
        (PLAIN, 3, 0, ""),
        (PLAIN, 3, 1, "participants.quorum: 2 of 3 participants are there, 3 are needed"),
        (HALF, 6, 3, ""),
        (HALF, 6, 4, "participants.quorum: 2 of 6 participants are there, 3 are needed"),
        (HALF, 3, 1, ""),
        (HALF, 3, 2, "participants.quorum: 1 of 3 participants are there, 2 are needed"),
        (HALF | MASKED, 4, 1, ""),
        (HALF | MASKED, 4, 2, "secure_aggregation.minimum: 2 of 4 participants are there, 3 are needed"),
        (HALF | MASKED, 8, 5, "participants.quorum: 3 of 8 participants are there, 4 are needed"),
        (STUDY, 3, 0, ""),
        (STUDY, 4, 1, "participants.quorum: 3 of 4 participants are there, 4 are needed"),
    ],
)  # fmt: skip
def test_a_round_goes_on_without_some_or_says_which_number_is_missed(
    job: dict[str, Any], members: int, gone: int, why_not: str
) -> None:
    quorum = quorum_of(check_job(job), members)
    assert quorum.why_not(gone) == why_not
    assert bool(why_not) == (members - gone < quorum.least)


@pytest.mark.parametrize(
    ("job", "members", "refused"),
    [
        (HALF, 2, ""),
        (HALF | MASKED, 2, ""),
        (HALF | PAIRWISE, 3, ""),
        (HALF | PAIRWISE, 2, "2 participants, at least 3 are needed"),
        (STUDY, 3, ""),
        (STUDY | {"secure_aggregation": {"mode": "pairwise", "threshold": 2}}, 3, "threshold"),
    ],
)
def test_mode_pairwise_takes_no_fewer_than_can_recover_masks(job: dict[str, Any], members: int, refused: str) -> None:
    if not refused:
        check_masks(check_job(job), members)
        return
    with pytest.raises(HanseError, match=refused):
        check_masks(check_job(job), members)


@pytest.mark.parametrize(
    ("quorum", "least", "needed", "enough"),
    [
        (Quorum(5, 3), 3, 3, 0),
        (Quorum(5, 2, masks=3), 3, 3, 0),
        (Quorum(5, 2, masks=3, threshold=4), 3, 4, 3),
        (Quorum(5, 2, masks=3, noise=5), 3, 5, 3),
        (Quorum(5, 5, masks=3, threshold=4), 5, 5, 0),
    ],
)
def test_where_masks_or_noise_need_more_than_the_job_those_who_are_there_can_sum_anew(
    quorum: Quorum, least: int, needed: int, enough: int
) -> None:
    assert (quorum.least, quorum.needed, quorum.enough) == (least, needed, enough)


def test_who_unmasks_a_second_sum_of_a_work_has_an_honest_site_in_common_with_the_first() -> None:
    sums = check_job(PLAIN | {"secure_aggregation": {"mode": "pairwise", "colluding": 1}}).secure_aggregation
    assert sums is not None
    assert threshold_wanted(sums, 9, 3) is None
    assert threshold_wanted(sums, 9, 3, above=15) == 9
    assert most_within(sums, 9, 9, 4) == 8 + 1 - 4


def test_all_that_is_too_few_is_told_in_the_same_words() -> None:
    failure = too_few("step r1-train", 1, 3, "answered", 2, why="north silent; south silent")
    assert failure.code is ErrorCode.QUORUM
    assert failure.message == "step r1-train: 1 of 3 participants answered, 2 are needed: north silent; south silent"
    assert counted(1, None, "are enrolled", 2) == "1 participants are enrolled, 2 are needed"


@pytest.mark.parametrize(("more", "whole"), [({}, 4), ({"mechanism": "dp_ftrl", **CORRELATED}, 6)])
def test_a_sum_is_of_so_many_that_its_noise_is_whole(more: dict[str, Any], whole: int) -> None:
    privacy = Privacy.model_validate({
        "placement": "distributed", "mechanism": "gaussian", "epsilon": 1.0, "delta": 1e-5, "clip": 1.0, "colluding": 2,
        **more,
    })  # fmt: skip
    assert least_members(privacy, TaskKind.TRAIN)(6) == whole
    assert least_members(privacy, TaskKind.EVALUATE)(6) == least_members(None, TaskKind.TRAIN)(6) == 1
