"""Places for requests are shared by person: nobody takes all of them, and strangers keep out nobody who is known."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from hanse_console.places import Place, Places


@pytest.fixture
def held() -> ExitStack:
    return ExitStack()


def taken(held: ExitStack, places: Places, cookie: str, address: str, person: str = "") -> bool:
    """Whether a request has found a place, of whom the hub then says whose it is."""
    place = held.enter_context(places.take(cookie, address))
    if place is not None and person:
        place.is_of(person)
    return place is not None


def test_one_person_has_an_eighth_by_however_many_sessions_and_addresses(held: ExitStack) -> None:
    places = Places(64)
    with held:
        for session in range(8):
            assert taken(held, places, f"session={session}", f"203.0.113.{session}", "ada")
        assert not taken(held, places, "session=0", "203.0.113.99")
        assert taken(held, places, "session=bob", "203.0.113.99", "bob"), "others find places"
    assert taken(held, places, "session=0", "203.0.113.99"), "what has ended is given back"


def test_strangers_share_half_and_each_address_an_eighth(held: ExitStack) -> None:
    places = Places(64)
    with held:
        assert [taken(held, places, "", "203.0.113.1") for _ in range(9)] == [True] * 8 + [False]
        assert not taken(held, places, "made=up", "203.0.113.1"), "a cookie that the hub does not know is nobody's"
        network = [taken(held, places, f"made={at}", f"2001:db8::{at}") for at in range(9)]
        assert network == [True] * 8 + [False], "a household has one network"
        crowd = [taken(held, places, "", f"198.51.100.{at}") for at in range(20)]
        assert crowd.count(True) == 16
        assert places._is_free("person ada"), "who is signed in finds a place beside them"


def test_a_session_that_is_over_is_a_stranger_s_again() -> None:
    places = Places(16)
    with places.take("session=1", "203.0.113.1") as place:
        assert isinstance(place, Place)
        place.is_of("ada")
        assert place.whose == "person ada"
        place.is_of("")
    with places.take("session=1", "203.0.113.1") as place:
        assert isinstance(place, Place)
        assert place.whose == "address 203.0.113.1"
    assert not places._taken


def test_no_more_than_all_places_are_taken(held: ExitStack) -> None:
    places = Places(16)
    with held:
        got = [taken(held, places, f"session={at}", "203.0.113.1", f"person-{at // 2}") for at in range(40)]
        assert got.count(True) == 16


def test_cookies_are_kept_as_hashes_alone() -> None:
    places = Places(16)
    with places.take("hanse_session=secret", "203.0.113.1") as place:
        assert place is not None
        place.is_of("ada")
    assert "secret" not in str(places._people)
