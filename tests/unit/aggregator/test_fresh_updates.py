"""Updates that came in by an aggregator's own door are at hand for the reduction that follows, within a bound."""

from __future__ import annotations

from hanse_aggregator.doors import FreshUpdates


def test_an_update_is_given_once_and_the_newest_of_a_subject_counts() -> None:
    fresh = FreshUpdates()
    fresh.put("site-1", b"first")
    fresh.put("site-1", b"second")
    assert [fresh.take("site-1"), fresh.take("site-1"), fresh.take("site-2")] == [b"second", None, None]


def test_no_more_than_the_bound_is_kept_and_the_oldest_go() -> None:
    fresh = FreshUpdates(most=10)
    for name in ("a", "b", "c"):
        fresh.put(name, b"12345")
    assert [fresh.take(name) for name in ("a", "b", "c")] == [None, b"12345", b"12345"]
    fresh.put("large", b"12345678901")
    assert fresh.take("large") is None
    fresh.put("d", b"1234567890")
    assert fresh.take("d") == b"1234567890", "what went has left its room"
