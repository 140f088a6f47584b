"""Who is in a second masked sum of a step: so many fewer of the first that the difference tells of no few."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hanse_workflows.masking.masked_sums import within

MANY = ("amber", "bell", "cape", "dune", "east", "north", "south", "west")


@given(left=st.sets(st.sampled_from(MANY)), most=st.integers(-2, 9), seed=st.integers(0, 9))
def test_no_more_than_may_be_are_kept_and_no_fewer(left: set[str], most: int, seed: int) -> None:
    kept = within(sorted(left), most, seed)
    assert set(kept) <= left
    assert len(kept) == min(len(left), max(most, 0))
    assert list(kept) == sorted(kept)
    assert kept == within(sorted(left), most, seed)
