"""Slots for requests are shared by person: nobody takes all of them, and strangers keep out nobody who is known."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from hanse_console.slots import Slot, Slots


@pytest.fixture
def held() -> ExitStack:
    return ExitStack()


def taken(held: ExitStack, slots: Slots, cookie: str, address: str, person: str = "") -> bool:
    """Whether a request has found a slot, of whom the hub then says whose it is."""
    slot = held.enter_context(slots.take(cookie, address))
    if slot is not None and person:
        slot.is_of(person)
    return slot is not None


def test_one_person_has_an_eighth_by_however_many_sessions_and_addresses(held: ExitStack) -> None:
    slots = Slots(64)
    with held:
        for session in range(8):
            assert taken(held, slots, f"session={session}", f"203.0.113.{session}", "ada")
        assert not taken(held, slots, "session=0", "203.0.113.99")
        assert taken(held, slots, "session=bob", "203.0.113.99", "bob"), "others find slots"
    assert taken(held, slots, "session=0", "203.0.113.99"), "what has ended is given back"


def test_strangers_share_half_and_each_address_an_eighth(held: ExitStack) -> None:
    slots = Slots(64)
    with held:
        assert [taken(held, slots, "", "203.0.113.1") for _ in range(9)] == [True] * 8 + [False]
        assert not taken(held, slots, "made=up", "203.0.113.1"), "a cookie that the hub does not know is nobody's"
        network = [taken(held, slots, f"made={at}", f"2001:db8::{at}") for at in range(9)]
        assert network == [True] * 8 + [False], "a household has one network"
        crowd = [taken(held, slots, "", f"198.51.100.{at}") for at in range(20)]
        assert crowd.count(True) == 16
        assert slots._is_free("person ada"), "who is signed in finds a slot beside them"


def test_a_session_that_is_over_is_a_stranger_s_again() -> None:
    slots = Slots(16)
    with slots.take("session=1", "203.0.113.1") as slot:
        assert isinstance(slot, Slot)
        slot.is_of("ada")
        assert slot.whose == "person ada"
        slot.is_of("")
    with slots.take("session=1", "203.0.113.1") as slot:
        assert isinstance(slot, Slot)
        assert slot.whose == "address 203.0.113.1"
    assert not slots._taken


def test_no_more_than_all_places_are_taken(held: ExitStack) -> None:
    slots = Slots(16)
    with held:
        got = [taken(held, slots, f"session={at}", "203.0.113.1", f"person-{at // 2}") for at in range(40)]
        assert got.count(True) == 16


def test_cookies_are_kept_as_hashes_alone() -> None:
    slots = Slots(16)
    with slots.take("hanse_session=secret", "203.0.113.1") as slot:
        assert slot is not None
        slot.is_of("ada")
    assert "secret" not in str(slots._people)
