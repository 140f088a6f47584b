"""Who is in a second masked sum of a step: so many fewer of the first that the difference tells of no few."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanse_schemas.job import check_job
from hanse_workflows import Verbs
from hanse_workflows.masking.masked_sums import _apart, _colluding, within

MANY = ("amber", "bell", "cape", "dune", "east", "north", "south", "west")


@given(left=st.sets(st.sampled_from(MANY)), most=st.integers(-2, 9), seed=st.integers(0, 9))
def test_no_more_than_may_be_are_kept_and_no_fewer(left: set[str], most: int, seed: int) -> None:
    kept = within(sorted(left), most, seed)
    assert set(kept) <= left
    assert len(kept) == min(len(left), max(most, 0))
    assert list(kept) == sorted(kept)
    assert kept == within(sorted(left), most, seed)


@given(first=st.sets(st.sampled_from(MANY)), left=st.sets(st.sampled_from(MANY)), by=st.integers(0, 9))
def test_in_a_run_of_the_first_release_so_many_of_the_first_sum_are_missing_from_the_second_and_no_more(
    first: set[str], left: set[str], by: int
) -> None:
    kept = set(_apart(tuple(sorted(first)), tuple(sorted(left)), by, 7))
    assert left - first <= kept <= left
    assert len(first - kept) == min(len(first), max(by, len(first - left)))


@pytest.mark.parametrize(("settings", "many"), [(None, 0), ({}, 0), ({"colluding": 0}, 0), ({"colluding": 2}, 2)])
def test_as_many_may_collude_as_the_job_says(settings: dict[str, int] | None, many: int) -> None:
    body: dict[str, Any] = {"rounds": 1, "model": {"name": "linear"}, "participants": {"minimum": 5}}
    job = check_job(body if settings is None else body | {"secure_aggregation": {"mode": "pairwise", **settings}})
    assert _colluding(cast("Verbs", SimpleNamespace(job=job))) == many
