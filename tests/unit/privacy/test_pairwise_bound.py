"""Pairwise masks serve one request and one work; and thresholds that hold although some sites collude."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.masks.bound import Asked
from hanse_privacy.pairwise.coordination import Orders, ask_unmask
from hanse_privacy.pairwise.messages import Agreement, MaskOrder, ShareRequest, UnmaskRequest
from hanse_privacy.pairwise.site import MaskingNote
from hanse_privacy.pairwise.thresholds import check_threshold, smallest_sum, threshold_of
from pairwise_sites import ASKED, Rehearsal

SESSION = "r1-train"
OTHER = replace(ASKED, request=b"r" * 32)


class Shared:
    """Four sites that have shared their secrets."""

    def __init__(self, folder: Path, asked: Asked | None = ASKED) -> None:
        self.sites = Rehearsal(folder, [f"site-{at}" for at in range(4)], asked=asked)
        self.request: ShareRequest = self.sites.open(SESSION)
        self.orders: Orders = self.sites.share(self.request)

    def masked(self, name: str, asked: Asked | None) -> MaskingNote:
        payload = self.orders.payloads[name]
        return self.sites.sites[name].masks(self.sites.run, payload, session=SESSION, task=name, asked=asked)

    def all_masked(self, of_the_first: Asked | None) -> dict[str, bytes]:
        first = self.request.names[0]
        asked = self.sites.asked
        return {
            name: self.masked(name, of_the_first if name == first else asked).payload for name in self.request.names
        }


def refused(action: Callable[[], object]) -> HanseError:
    with pytest.raises(HanseError) as raised:
        action()
    return raised.value


def test_the_coordinator_unmasks_those_of_one_request_and_names_the_others(tmp_path: Path) -> None:
    shared = Shared(tmp_path)
    asked = ask_unmask(shared.request, shared.orders.members, shared.all_masked(OTHER))
    assert asked.asked == ASKED.request
    assert asked.survivors == ("site-1", "site-2", "site-3")
    assert list(asked.refused) == ["site-0"]


def test_a_site_reveals_nothing_where_one_survivor_has_signed_another_request(tmp_path: Path) -> None:
    shared = Shared(tmp_path)
    signed = [Agreement.decode(payload).signature for payload in shared.all_masked(OTHER).values()]
    names = tuple(shared.request.names)
    asked = UnmaskRequest(session=SESSION, survivors=names, agreements=b"".join(signed)).encode()
    for name, other in (("site-1", "site-0"), ("site-0", "site-1")):
        site = shared.sites.sites[name]
        error = refused(lambda site=site: site.unmask(shared.sites.run, asked, session=SESSION))  # type: ignore[misc]
        assert error.code is ErrorCode.TAMPERED
        assert f"members and request of {other}" in error.message


def test_the_secrets_of_a_session_serve_one_request(tmp_path: Path) -> None:
    shared = Shared(tmp_path)
    first = shared.masked("site-0", ASKED)
    assert shared.masked("site-0", ASKED).payload == first.payload
    shared.sites.sites["site-0"] = shared.sites.started("site-0")
    assert refused(lambda: shared.masked("site-0", OTHER)).code is ErrorCode.CONFLICT


@pytest.mark.parametrize(
    ("opened", "asked"), [(ASKED, replace(ASKED, work=b"w" * 32)), (ASKED, None), (None, ASKED)]
)  # fmt: skip
def test_a_session_serves_the_work_that_it_was_opened_for(
    tmp_path: Path, opened: Asked | None, asked: Asked | None
) -> None:
    shared = Shared(tmp_path, opened)
    error = refused(lambda: shared.masked("site-0", asked))
    assert (error.code, "opened for another work" in error.message) == (ErrorCode.CONFLICT, True)


def test_a_session_of_release_0_1_0_is_whole(tmp_path: Path) -> None:
    shared = Shared(tmp_path, None)
    notes = shared.sites.mask(shared.request, shared.orders)
    assert all(b'"hanse.pairwise_agreement/1"' in note.payload for note in notes.values())
    assert b'"hanse.pairwise_share_request/1"' in shared.request.encode()
    kept = shared.sites.folder / "site-0" / shared.sites.run / f"{SESSION}.session"
    assert b'"hanse.pairwise_session/1"' in kept.read_bytes()  # which that release reads, too
    _, recovered = shared.sites.unmask(shared.request, shared.orders, notes)
    assert recovered.recovery is not None


def test_two_sites_are_enough_where_no_more_are_asked_for_and_of_many_two_thirds_are_needed() -> None:
    assert threshold_of(None, members=2, minimum=2) == 2
    assert threshold_of(None, members=31, minimum=2) == 21  # two thirds, where fewer would be enough


def test_a_site_masks_for_no_set_that_it_is_not_in(tmp_path: Path) -> None:
    sites = Rehearsal(tmp_path, [f"site-{at}" for at in range(4)], asked=ASKED)
    orders = sites.share(sites.open(SESSION))
    order = MaskOrder.decode(orders.payloads["site-0"]).model_copy(update={"members": orders.members[1:]})
    error = refused(
        lambda: sites.sites["site-0"].masks(sites.run, order.encode(), session=SESSION, task="one", asked=ASKED)
    )
    assert error.code is ErrorCode.INVALID_INPUT
    assert "a set with site-0 in it" in error.message


def test_ten_sites_of_which_three_collude_need_a_threshold_of_nine_for_six_honest_ones() -> None:
    assert (smallest_sum(10, 7), smallest_sum(10, 7, 3)) == (6, 2)
    assert threshold_of(None, members=10, minimum=6, colluding=3) == 9
    with pytest.raises(HanseError, match="a sum of 2 beside 3 that collude"):
        check_threshold(7, members=10, minimum=6, colluding=3)
    check_threshold(7, members=10, minimum=6)


def test_the_threshold_that_a_job_names_is_taken_or_refused_and_never_replaced() -> None:
    assert [threshold_of(wanted, members=10, minimum=3) for wanted in (None, 6, 8, 10)] == [7, 6, 8, 10]
    with pytest.raises(HanseError, match="more than half of the 10 participants"):
        threshold_of(5, members=10, minimum=3)
    with pytest.raises(HanseError, match="11 of 10 participants can never be reached"):
        threshold_of(11, members=10, minimum=3)
    with pytest.raises(HanseError, match="a sum of 2 beside 3 that collude"):
        threshold_of(7, members=10, minimum=6, colluding=3)


def test_the_default_threshold_is_the_least_from_two_thirds_on_that_sites_agree_to() -> None:
    def agreed(threshold: int, members: int, minimum: int, colluding: int) -> bool:
        try:
            check_threshold(threshold, members=members, minimum=minimum, colluding=colluding)
        except HanseError:
            return False
        return True

    for members in range(2, 16):
        for colluding in range(4):
            for minimum in range(2, members - colluding + 1):
                least = max(-(-2 * members // 3), minimum)
                wanted = next(at for at in range(least, members + 1) if agreed(at, members, minimum, colluding))
                assert threshold_of(None, members=members, minimum=minimum, colluding=colluding) == wanted


def test_a_session_is_of_two_at_least_and_of_three_hundred_at_most() -> None:
    for minimum in (0, 1):
        with pytest.raises(HanseError, match="1 participants, at least 2 are needed"):
            threshold_of(None, members=1, minimum=minimum)
        assert threshold_of(None, members=2, minimum=minimum) == 2
    assert threshold_of(None, members=300, minimum=3) == 200
    with pytest.raises(HanseError, match="'301 participants' is not of at most 300"):
        threshold_of(None, members=301, minimum=3)


def test_a_refused_threshold_says_how_small_a_sum_could_be_and_who_colludes_only_where_some_may() -> None:
    for threshold, members, colluding, told in (
        (5, 9, 0, "a sum of 2"), (6, 10, 2, "a sum of 0 beside 2 that collude with it"),
    ):  # fmt: skip
        with pytest.raises(HanseError) as refused:
            check_threshold(threshold, members=members, minimum=5, colluding=colluding)
        assert refused.value.message.endswith(f"could unmask {told}")


def test_those_who_collude_are_all_that_it_takes_where_the_threshold_is_hardly_more() -> None:
    """One honest answer of each kind: the hub names one of the two honest sites as dropped to the other."""
    assert [smallest_sum(3, 2, colluding) for colluding in (0, 1, 2)] == [2, 0, 0]


@given(st.integers(3, 300), st.integers(2, 300), st.integers(0, 60))
def test_the_default_threshold_holds_where_any_does(members: int, minimum: int, colluding: int) -> None:
    if members < minimum + colluding:
        with pytest.raises(HanseError):
            threshold_of(None, members=members, minimum=minimum, colluding=colluding)
        return
    threshold = threshold_of(None, members=members, minimum=minimum, colluding=colluding)
    check_threshold(threshold, members=members, minimum=minimum, colluding=colluding)
    # Nobody's both secrets can be had: that takes as many honest answers of either kind.
    assert 2 * (threshold - colluding) > members - colluding


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (
            Agreement(signature=b"s" * 64, request=b"r" * 32),
            b'{"request":"cnJycnJycnJycnJycnJycnJycnJycnJycnJycnJycnI=","schema":"hanse.pairwise_agreement/2",'
            b'"signature":"' + b"c3Nz" * 21 + b'cw=="}',
        ),
        (
            Agreement(signature=b"s" * 64),
            b'{"schema":"hanse.pairwise_agreement/1","signature":"' + b"c3Nz" * 21 + b'cw=="}',
        ),
    ],
)  # fmt: skip
def test_an_agreement_has_its_golden_bytes_in_either_version(message: Agreement, text: bytes) -> None:
    assert message.encode() == text
    assert Agreement.decode(text) == message
