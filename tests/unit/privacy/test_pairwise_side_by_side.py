"""Many sessions of one run under way at once: all of the same members, and each sum of all of them or of none."""

from __future__ import annotations

from pathlib import Path

import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.pairwise.coordination import ask_unmask
from hanse_privacy.pairwise.messages import ShareRequest
from pairwise_sites import ASKED, Rehearsal

NAMES = ["east", "north", "south", "west"]
SESSIONS = ["c00000-counts", "c00001-counts", "c00002-counts"]


@pytest.fixture
def cohorts(tmp_path: Path) -> Rehearsal:
    return Rehearsal(tmp_path, NAMES, beside=8)


def test_sessions_begun_together_are_unmasked_in_any_order(cohorts: Rehearsal) -> None:
    requests = {session: cohorts.open(session) for session in SESSIONS}
    orders = {session: cohorts.share(request) for session, request in requests.items()}
    notes = {session: cohorts.mask(requests[session], orders[session]) for session in reversed(SESSIONS)}
    for session in (SESSIONS[1], SESSIONS[2], SESSIONS[0]):
        _, recovered = cohorts.unmask(requests[session], orders[session], notes[session])
        assert recovered is not None
    with pytest.raises(HanseError) as over:
        cohorts.sites["east"].masks(
            cohorts.run, orders[SESSIONS[0]].payloads["east"], session=SESSIONS[0], task="another", asked=ASKED
        )
    assert over.value.code is ErrorCode.GONE


def test_a_sum_without_one_of_the_members_is_not_unmasked(cohorts: Rehearsal) -> None:
    request = cohorts.open(SESSIONS[0])
    orders = cohorts.share(request)
    notes = cohorts.mask(request, orders)
    asked = ask_unmask(request, orders.members, {name: notes[name].payload for name in NAMES[:3]})
    with pytest.raises(HanseError, match="3 of the session's 4, expected all of them") as refused:
        cohorts.sites["east"].unmask(cohorts.run, asked.payload, session=SESSIONS[0])
    assert refused.value.code is ErrorCode.CONFLICT


def test_a_site_refuses_to_mask_for_fewer_than_all_members(cohorts: Rehearsal) -> None:
    request = cohorts.open(SESSIONS[0])
    orders = cohorts.share(request, NAMES[:3])
    with pytest.raises(HanseError, match="members: 3 of the session's 4"):
        cohorts.mask(request, orders)


def test_a_session_of_other_members_is_refused_while_one_is_under_way(cohorts: Rehearsal) -> None:
    cohorts.share(cohorts.open(SESSIONS[0]))
    fewer = cohorts.open(SESSIONS[1], NAMES[:3])
    with pytest.raises(HanseError, match=f"session {SESSIONS[0]} is under way with others") as refused:
        cohorts.share(fewer)
    assert refused.value.code is ErrorCode.CONFLICT


def test_where_sessions_are_under_way_one_at_a_time_the_next_may_be_of_other_members(tmp_path: Path) -> None:
    sites = Rehearsal(tmp_path, NAMES)
    sites.share(sites.open(SESSIONS[0]))
    fewer = sites.open(SESSIONS[1], NAMES[:3])
    assert sites.mask(fewer, sites.share(fewer)).keys() == set(NAMES[:3])


def test_a_site_that_was_killed_while_it_ended_a_session_begins_the_next_one(cohorts: Rehearsal) -> None:
    """The end of a session is written before its secrets are erased: whoever is killed in between has both."""
    requests = [cohorts.open(session) for session in SESSIONS[:2]]
    killed_in_between(cohorts, requests[0])
    orders = cohorts.share(requests[1])
    assert len(cohorts.mask(requests[1], orders)) == len(NAMES)


def test_what_unmasks_a_sum_is_told_again_by_a_site_that_was_killed_while_it_ended_the_session(tmp_path: Path) -> None:
    cohorts = Rehearsal(tmp_path, NAMES)
    requests = [cohorts.open(session) for session in SESSIONS[:2]]
    asked, told = killed_in_between(cohorts, requests[0])
    cohorts.share(requests[1])
    assert cohorts.sites["east"].unmask(cohorts.run, asked, session=SESSIONS[0]) == told


def killed_in_between(cohorts: Rehearsal, request: ShareRequest) -> tuple[bytes, bytes]:
    """Have all unmask the session's sum, and east's secrets on the disk as they were before: (asked, east's answer)."""
    orders = cohorts.share(request)
    notes = cohorts.mask(request, orders)
    (secrets,) = (cohorts.folder / "east").rglob(f"{request.session}.session")
    kept = secrets.read_bytes()
    asked = ask_unmask(request, orders.members, {name: notes[name].payload for name in NAMES})
    told = [cohorts.sites[name].unmask(cohorts.run, asked.payload, session=request.session) for name in NAMES]
    assert not secrets.exists()
    secrets.write_bytes(kept)
    return asked.payload, told[0]


def test_a_site_ends_its_oldest_sessions_when_there_are_too_many(tmp_path: Path) -> None:
    cohorts = Rehearsal(tmp_path, NAMES, beside=2)
    requests = [cohorts.open(session) for session in SESSIONS]
    orders = [cohorts.share(request) for request in requests]
    with pytest.raises(HanseError) as gone:
        cohorts.mask(requests[0], orders[0])
    assert gone.value.code is ErrorCode.GONE
    assert len(cohorts.mask(requests[1], orders[1])) == len(NAMES)
