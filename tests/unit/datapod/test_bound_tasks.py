"""Which tasks a site wants bound, and that once it was asked so it stays so, over restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from hanse_datapod.masking.binding import asked_of, check_binding
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import MaskingMode, Task, TaskKind
from hanse_learning.binding import request_digest, task_seed, work_digest
from hanse_site.identity import BOUND as MARK
from unit.datapod.masked_actors import masked_task, policy
from unit.datapod.site_actors import task

SETTINGS = {"config": {"model": {"name": "linear"}}}
BOUND = masked_task(**SETTINGS)
UNBOUND = BOUND.model_copy(update={"bound": None})


def refusal(given: Task, home: Path, **rules: object) -> HanseError:
    with pytest.raises(HanseError) as refused:
        check_binding(policy(**rules), given, home)
    return refused.value


def test_what_is_asked_is_worked_out_from_the_task_and_is_nothing_where_it_is_not_bound() -> None:
    asked = asked_of(BOUND, noise=b"n" * 32)
    assert asked is not None
    assert (asked.request, asked.work) == (request_digest(BOUND, noise=b"n" * 32), work_digest(BOUND))
    assert asked_of(UNBOUND) is None


@pytest.mark.parametrize("kind", [TaskKind.TRAIN, TaskKind.EVALUATE, TaskKind.SHARE])
def test_after_a_bound_task_no_other_is_taken_in_that_home(tmp_path: Path, kind: TaskKind) -> None:
    given = UNBOUND.model_copy(update={"kind": kind})
    check_binding(policy(), given, tmp_path)
    check_binding(policy(), BOUND, tmp_path)
    assert (tmp_path / MARK).exists()
    assert "bound to nothing" in refusal(given, tmp_path).message


def test_a_policy_that_requires_it_takes_no_unbound_task_from_the_start(tmp_path: Path) -> None:
    error = refusal(UNBOUND, tmp_path, bound="required")
    assert error.code is ErrorCode.POLICY
    assert "masking.bound" in error.message
    check_binding(policy(bound="required"), BOUND, tmp_path)


def test_where_masks_are_required_no_unbound_task_is_taken_unless_the_policy_says_so(tmp_path: Path) -> None:
    assert "masking.bound" in refusal(UNBOUND, tmp_path, required=True).message
    check_binding(policy(required=True, bound="offered"), UNBOUND, tmp_path)


def test_a_home_that_has_joined_by_this_release_takes_none_whatever_the_policy_says(tmp_path: Path) -> None:
    (tmp_path / MARK).touch()  # as enrolling leaves it
    for rules in ({}, {"bound": "offered"}):
        assert "when this site joined" in refusal(UNBOUND, tmp_path, **rules).message


@pytest.mark.parametrize(
    "given",
    [
        task("r1-train"),
        UNBOUND.model_copy(update={"kind": TaskKind.INITIALIZE}),
        UNBOUND.model_copy(update={"kind": TaskKind.ADVERTISE}),
        UNBOUND.model_copy(update={"kind": TaskKind.UNMASK}),
        masked_task(mode=MaskingMode.RING).model_copy(update={"bound": None}),
    ],
    ids=["unmasked", "first model", "keys", "unmasking, which the session knows of", "ring"],
)
def test_a_task_of_which_no_mask_is_made_need_not_be_bound(tmp_path: Path, given: Task) -> None:
    check_binding(policy(bound="required"), given, tmp_path)
    assert not (tmp_path / MARK).exists()


@pytest.mark.parametrize("kind", [TaskKind.TRAIN, TaskKind.EVALUATE, TaskKind.STUDY])
def test_a_seed_is_the_one_that_follows_from_the_jobs_for_this_site(tmp_path: Path, kind: TaskKind) -> None:
    given = masked_task(kind=kind)
    check_binding(policy(), given, tmp_path)
    at = given.bound.key if kind is TaskKind.STUDY and given.bound is not None else given.round
    for seed in (given.seed ^ 1, task_seed(kind, 7, at, "south"), task_seed(kind, 8, at, given.participant)):
        error = refusal(given.model_copy(update={"seed": seed}), tmp_path)
        assert error.code is ErrorCode.TAMPERED
        assert "task.seed" in error.message
