"""Secrets of the session that comes next, shared beside the masked answers of this one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hanse_fabric.errors import ErrorCode
from hanse_privacy.masks.bound import Asked
from hanse_privacy.pairwise.coordination import Orders, ask_unmask, order_masks, read_adverts, shared_ahead
from hanse_privacy.pairwise.messages import Advert, AdvertRequest, Agreement, ShareRequest
from hanse_privacy.pairwise.site import MaskingNote, PairwiseSite
from hanse_privacy.works.pairwise import UnmaskingSession
from pairwise_sites import ASKED, Rehearsal, refusal

FIRST, NEXT, LAST = "r1-train", "r1-evaluate", "r2-train"
ANOTHER = Asked(request=b"r" * 32, work=b"w" * 32)


class TwoSessions:
    """Four sites that have masked in the first session, and have shared beside their answers for the next."""

    def __init__(self, folder: Path) -> None:
        self.sites = Rehearsal(folder, [f"site-{at}" for at in range(4)])
        self.request: ShareRequest = self.sites.open(FIRST)
        answers = {name: self.site(name).share(self.sites.run, self.request.encode(), session=FIRST) for name in self}
        self.orders: Orders = order_masks(self.request, answers, ahead=NEXT)
        self.notes = {name: self.masks(name, self.request, self.orders) for name in self}
        self.next: ShareRequest = self.request.next(NEXT)
        beside = shared_ahead({name: note.payload for name, note in self.notes.items()})
        self.next_orders: Orders = order_masks(self.next, beside, ahead=LAST)

    def __iter__(self):
        return iter(self.request.names)

    def site(self, name: str) -> PairwiseSite:
        return self.sites.sites[name]

    def masks(
        self, name: str, request: ShareRequest, orders: Orders, asked: Asked | None = ASKED, *, task: str = ""
    ) -> MaskingNote:
        task = task or f"{request.session}/{name}"
        payload, session = orders.payloads[name], request.session
        return self.site(name).masks(self.sites.run, payload, session=session, task=task, asked=asked)

    def unmask(self, request: ShareRequest, orders: Orders, notes: dict[str, MaskingNote], name: str) -> bytes:
        asked = ask_unmask(request, orders.members, {each: note.payload for each, note in notes.items()})
        return self.site(name).unmask(self.sites.run, asked.payload, session=request.session)


@pytest.fixture
def two(tmp_path: Path) -> TwoSessions:
    return TwoSessions(tmp_path)


def test_the_next_session_is_masked_and_unmasked_without_anybody_being_asked_to_share(two: TwoSessions) -> None:
    _, recovered = two.sites.unmask(two.request, two.orders, two.notes)
    assert recovered.recovery is not None
    notes = {name: two.masks(name, two.next, two.next_orders, ANOTHER) for name in two}
    _, recovered = two.sites.unmask(two.next, two.next_orders, notes)
    assert recovered.recovery is not None
    assert shared_ahead({name: note.payload for name, note in notes.items()}).keys() == set(two)


def test_a_site_that_was_restarted_says_the_same_again(two: TwoSessions) -> None:
    two.sites.sites["site-0"] = two.sites.started("site-0")
    assert two.masks("site-0", two.request, two.orders).payload == two.notes["site-0"].payload
    first = two.masks("site-0", two.next, two.next_orders, ANOTHER)
    two.sites.sites["site-0"] = two.sites.started("site-0")
    assert two.masks("site-0", two.next, two.next_orders, ANOTHER).payload == first.payload


def test_what_was_shared_ahead_serves_one_work_one_request_and_one_task(two: TwoSessions) -> None:
    two.masks("site-0", two.next, two.next_orders, ANOTHER)
    for other in (ASKED, replace(ANOTHER, request=b"q" * 32)):
        refused = refusal(lambda asked=other: two.masks("site-0", two.next, two.next_orders, asked))  # type: ignore[misc]
        assert refused.code is ErrorCode.CONFLICT
    assert refusal(lambda: two.masks("site-0", two.next, two.next_orders, ANOTHER, task="x")).code is ErrorCode.CONFLICT


def test_what_was_shared_ahead_serves_nobody_who_binds_nothing_and_no_sums_within_a_work(two: TwoSessions) -> None:
    assert refusal(lambda: two.masks("site-0", two.next, two.next_orders, None)).code is ErrorCode.CONFLICT
    begun: list[UnmaskingSession] = []
    refused = refusal(
        lambda: two.site("site-0").sums(
            two.sites.run, two.next_orders.payloads["site-0"], session=NEXT, task="t", begin=begun.append, asked=ASKED
        )
    )
    assert (refused.code, "shared ahead" in refused.message, begun) == (ErrorCode.CONFLICT, True, [])


def test_whoever_masks_in_the_next_session_unmasks_the_first_no_more(two: TwoSessions) -> None:
    two.masks("site-0", two.next, two.next_orders, ANOTHER)
    assert refusal(lambda: two.unmask(two.request, two.orders, two.notes, "site-0")).code is ErrorCode.GONE
    assert two.unmask(two.request, two.orders, two.notes, "site-1")


def test_whoever_shares_anew_has_nothing_left_of_what_was_shared_ahead(two: TwoSessions) -> None:
    two.sites.share(two.sites.open("r1-train-s2"))
    assert refusal(lambda: two.masks("site-0", two.next, two.next_orders, ANOTHER)).code is ErrorCode.GONE
    live = [path.name for path in (two.sites.folder / "site-0" / two.sites.run).glob("*.session")]
    assert live == ["r1-train-s2.session"]


def test_one_session_is_shared_ahead_at_a_time(two: TwoSessions) -> None:
    two.masks("site-0", two.next, two.next_orders, ANOTHER)
    live = {path.name for path in (two.sites.folder / "site-0" / two.sites.run).glob("*.session")}
    assert live == {f"{NEXT}.session", f"{LAST}.session"}


def test_a_session_that_is_over_is_not_shared_ahead_again(two: TwoSessions) -> None:
    notes = {name: two.masks(name, two.next, two.next_orders, ANOTHER) for name in two}
    two.sites.unmask(two.next, two.next_orders, notes)
    last = two.next.next(LAST)
    beside = shared_ahead({name: note.payload for name, note in notes.items()})
    orders = order_masks(last, beside, ahead=NEXT)
    assert shared_ahead({"site-0": two.masks("site-0", last, orders).payload}) == {}


def test_nothing_is_shared_ahead_where_a_member_has_not_shared(tmp_path: Path) -> None:
    sites = Rehearsal(tmp_path, [f"site-{at}" for at in range(4)])
    request = sites.open(FIRST)
    answers = {
        name: sites.sites[name].share(sites.run, request.encode(), session=FIRST) for name in request.names[:3]
    }  # fmt: skip
    notes = sites.mask(request, order_masks(request, answers, ahead=NEXT))
    assert shared_ahead({name: note.payload for name, note in notes.items()}) == {}


def test_sites_say_that_they_share_ahead_to_a_hub_that_asks_and_studies_sites_do_not(tmp_path: Path) -> None:
    sites = Rehearsal(tmp_path, ["east", "west", "south"])
    asked = AdvertRequest(ahead=True).encode()
    adverts = {
        "east": sites.sites["east"].advertise(sites.run, asked),
        "west": sites.sites["west"].advertise(sites.run),
    }
    assert b"hanse.pairwise_advert/1" in adverts["west"]
    sites.beside = 8
    adverts["south"] = sites.started("south").advertise(sites.run, asked)
    assert Advert.decode(adverts["south"]).ahead is False
    read = read_adverts(sites.project, sites.run, sites.identities, adverts)
    assert (read.ahead, len(read.members)) == (frozenset({"east"}), 3)


def test_a_hub_that_asks_for_nothing_ahead_hears_what_one_of_release_0_1_0_does(tmp_path: Path) -> None:
    sites = Rehearsal(tmp_path, ["east"])
    plain = sites.sites["east"].advertise(sites.run)
    assert sites.sites["east"].advertise(sites.run, AdvertRequest(ahead=False).encode()) == plain


@pytest.mark.parametrize("given", [{"asked": None}, {"beside": 8}], ids=["of a hub that binds nothing", "of studies"])
def test_nothing_is_shared_ahead_by_sites_that_cannot_use_it(tmp_path: Path, given: dict[str, int | None]) -> None:
    sites = Rehearsal(tmp_path, ["east", "south", "west"], **given)  # type: ignore[arg-type]
    request = sites.open(FIRST)
    answers = {name: sites.sites[name].share(sites.run, request.encode(), session=FIRST) for name in request.names}
    notes = sites.mask(request, order_masks(request, answers, ahead=NEXT))
    assert [Agreement.decode(note.payload).ahead for note in notes.values()] == [None] * 3
    assert [path.name for path in (tmp_path / "east" / sites.run).glob("*.session")] == [f"{FIRST}.session"]


def with_ahead(sites: Rehearsal, session: str, ahead: str, name: str = "east", **changed: object) -> MaskingNote:
    """A site's masks in a session, beside which it is to share for another."""
    request = sites.open(session).model_copy(update=changed)
    answers = {each: sites.sites[each].share(sites.run, request.encode(), session=session) for each in request.names}
    payload = order_masks(request, answers, ahead=ahead).payloads[name]
    return sites.sites[name].masks(sites.run, payload, session=session, task="t", asked=sites.asked)


def restarted(sites: Rehearsal, *, beside: int) -> None:
    sites.beside = beside
    sites.sites = {name: sites.started(name) for name in sites.sites}


@pytest.mark.parametrize("work", [None, ASKED.work], ids=["none", "a work"])
def test_a_session_that_was_opened_otherwise_is_over_and_not_shared_ahead(tmp_path: Path, work: bytes | None) -> None:
    """Of a site whose policy lets sessions be under way side by side no more."""
    sites = Rehearsal(tmp_path, ["east", "south", "west"], beside=8)
    sites.share(sites.open(NEXT).model_copy(update={"work": work}))
    sites.share(sites.open(FIRST))
    restarted(sites, beside=0)
    assert Agreement.decode(with_ahead(sites, FIRST, NEXT).payload).ahead is None
    assert [path.name for path in (tmp_path / "east" / sites.run).glob("*.session")] == [f"{FIRST}.session"]


def test_what_was_shared_ahead_with_one_threshold_is_not_told_again_with_another(tmp_path: Path) -> None:
    sites = Rehearsal(tmp_path, ["east", "north", "south", "west"])
    assert Agreement.decode(with_ahead(sites, FIRST, NEXT).payload).ahead is not None
    restarted(sites, beside=8)
    request = sites.open(LAST).model_copy(update={"threshold": 4})
    assert request.threshold != sites.open(FIRST).threshold
    sites.share(request)
    restarted(sites, beside=0)
    refused = refusal(lambda: with_ahead(sites, LAST, NEXT, threshold=4))
    assert refused.code is ErrorCode.CONFLICT
    assert "other members or keys" in refused.message


def test_what_was_shared_ahead_and_never_used_is_over_once_another_session_is_shared_ahead(tmp_path: Path) -> None:
    """Of a site whose policy let sessions be under way side by side in between."""
    sites = Rehearsal(tmp_path, ["east", "south", "west"])
    with_ahead(sites, FIRST, NEXT)
    restarted(sites, beside=8)
    sites.share(sites.open(LAST))
    restarted(sites, beside=0)
    with_ahead(sites, LAST, "r2-evaluate")
    live = {path.name for path in (tmp_path / "east" / sites.run).glob("*.session")}
    assert live == {f"{LAST}.session", "r2-evaluate.session"}


def test_a_roster_that_was_pinned_after_secrets_were_shared_holds_for_what_is_shared_ahead(tmp_path: Path) -> None:
    sites = Rehearsal(tmp_path, ["east", "south", "west"])
    sites.share(sites.open(FIRST))
    sites.sites["east"]._roster = b"another" * 4
    refused = refusal(lambda: with_ahead(sites, FIRST, NEXT))
    assert refused.code is ErrorCode.TAMPERED
    assert "policy pins" in refused.message
