"""Who is left out of a second masked sum, so that the difference of the two tells of no few."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hanse_workflows.masking.masked_sums import apart

MANY = ("amber", "bell", "cape", "dune", "east", "north", "south", "west")


@given(
    given_names=st.sets(st.sampled_from(MANY), min_size=1),
    left=st.sets(st.sampled_from(MANY)),
    by=st.integers(1, 5),
    seed=st.integers(0, 9),
)
def test_apart_drops_no_more_than_it_must(given_names: set[str], left: set[str], by: int, seed: int) -> None:
    first, rest = tuple(sorted(given_names)), tuple(sorted(left))
    kept = apart(first, rest, by, seed)
    assert set(kept) <= left
    assert len(given_names - set(kept)) >= min(by, len(given_names))
    assert len(kept) >= len(left) - by
    assert kept == apart(first, rest, by, seed)
