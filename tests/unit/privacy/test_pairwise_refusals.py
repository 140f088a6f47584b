"""What a pairwise site refuses: a hub that lies about keys or sets, shares that are not what their sender made."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey
from hanse_privacy.masks.bound import Asked
from hanse_privacy.masks.seal import roster_digest
from hanse_privacy.pairwise import shamir
from hanse_privacy.pairwise import shares as sharing
from hanse_privacy.pairwise.coordination import Orders, ask_unmask, order_masks, read_adverts
from hanse_privacy.pairwise.keys import RunKey, advert_statement
from hanse_privacy.pairwise.messages import MaskOrder, ShareRequest, UnmaskAnswer, UnmaskRequest
from hanse_privacy.pairwise.recovering import recover
from hanse_privacy.pairwise.shares import CHECK_BYTES, SEALED_BYTES, SharePair, make_shares, open_share, share_checks
from hanse_privacy.pairwise.site import MaskingNote, PairwiseSite
from hanse_privacy.pairwise.thresholds import smallest_sum, threshold_of
from pairwise_sites import ASKED, Rehearsal

SESSION = "r1-train"
LOW_ORDER = bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800")


@dataclass(frozen=True, slots=True)
class Session:
    """A session whose members have shared and masked."""

    all_sites: Rehearsal
    request: ShareRequest
    orders: Orders
    notes: dict[str, MaskingNote]

    def asked(self, *survivors: str) -> bytes:
        return ask_unmask(
            self.request, self.orders.members, {name: self.notes[name].payload for name in survivors}
        ).payload

    def unmask(self, name: str, payload: bytes) -> bytes:
        return self.all_sites.sites[name].unmask(self.all_sites.run, payload, session=SESSION)

    def masks(self, name: str, payload: bytes, *, task: str = "", asked: Asked | None = ASKED) -> MaskingNote:
        task = task or f"{SESSION}/{name}"
        return self.all_sites.sites[name].masks(self.all_sites.run, payload, session=SESSION, task=task, asked=asked)


@pytest.fixture
def five(tmp_path: Path) -> Rehearsal:
    return Rehearsal(tmp_path, [f"site-{at}" for at in range(5)])


@pytest.fixture
def session(five: Rehearsal) -> Session:
    request = five.open(SESSION)
    orders = five.share(request)
    return Session(five, request, orders, five.mask(request, orders))


def refusal(call: Callable[[], object]) -> HanseError:
    with pytest.raises(HanseError) as refused:
        call()
    return refused.value


def share(all_sites: Rehearsal, request: ShareRequest, name: str = "site-0") -> bytes:
    return all_sites.sites[name].share(all_sites.run, request.encode(), session=SESSION)


def altered(request: ShareRequest, name: str, **update: object) -> ShareRequest:
    members = tuple(
        member.model_copy(update=update) if member.participant == name else member for member in request.members
    )
    return request.model_copy(update={"members": members})


def test_a_key_that_its_owner_did_not_sign_is_refused(five: Rehearsal) -> None:
    request = altered(five.open(SESSION), "site-1", key=RunKey.create().public_bytes)
    error = refusal(lambda: share(five, request))
    assert error.code is ErrorCode.TAMPERED
    assert "key of site-1" in error.message


def test_a_key_of_another_run_is_refused(five: Rehearsal) -> None:
    other = RunKey.create().public_bytes
    signature = five.signing["site-1"].sign(advert_statement(five.project, "otherrun0000", "site-1", other))
    request = altered(five.open(SESSION), "site-1", key=other, signature=signature)
    assert refusal(lambda: share(five, request)).code is ErrorCode.TAMPERED


def test_a_hub_that_replaces_a_site_by_its_own_is_refused_where_the_roster_is_pinned(five: Rehearsal) -> None:
    own, key = SigningKey.create(), RunKey.create().public_bytes
    signature = own.sign(advert_statement(five.project, five.run, "site-1", key))
    request = altered(five.open(SESSION), "site-1", identity=own.public_bytes, key=key, signature=signature)
    error = refusal(lambda: share(five, request))
    assert error.code is ErrorCode.TAMPERED
    assert "pinned roster" in error.message
    roster = b"".join(sorted([*five.identities.values(), own.public_bytes]))
    assert "policy pins" in refusal(lambda: share(five, request.model_copy(update={"roster": roster}))).message


def test_a_low_order_key_is_refused_even_when_it_is_signed(five: Rehearsal) -> None:
    signature = five.signing["site-1"].sign(advert_statement(five.project, five.run, "site-1", LOW_ORDER))
    request = altered(five.open(SESSION), "site-1", key=LOW_ORDER, signature=signature)
    error = refusal(lambda: share(five, request))
    assert error.code is ErrorCode.TAMPERED
    assert "low order" in error.message


def test_a_session_without_the_site_itself_or_with_another_key_of_its_is_refused(five: Rehearsal) -> None:
    without = five.open(SESSION, ["site-1", "site-2", "site-3"])
    assert refusal(lambda: share(five, without)).code is ErrorCode.TAMPERED
    key = RunKey.create().public_bytes
    signature = five.signing["site-0"].sign(advert_statement(five.project, five.run, "site-0", key))
    other = altered(five.open(SESSION), "site-0", key=key, signature=signature)
    assert refusal(lambda: share(five, other)).code is ErrorCode.TAMPERED


def test_members_that_are_twice_there_or_unsorted_are_refused(five: Rehearsal) -> None:
    request = five.open(SESSION)
    first, second, *rest = request.members
    for members in ([first, first, second, *rest], [second, first, *rest]):
        forged = request.model_copy(update={"members": tuple(members)})
        assert refusal(lambda forged=forged: share(five, forged)).code is ErrorCode.INVALID_INPUT
    twin = second.model_copy(update={"participant": "site-9"})
    forged = request.model_copy(update={"members": (*request.members, twin)})
    assert "same identity" in refusal(lambda: share(five, forged)).message


@pytest.mark.parametrize("threshold", [2, 3, 6])
def test_a_threshold_that_allows_too_small_a_sum_is_refused(five: Rehearsal, threshold: int) -> None:
    """Of five, 3 is more than half, but a lying hub could unmask a sum of two with it."""
    request = five.open(SESSION).model_copy(update={"threshold": threshold})
    assert refusal(lambda: share(five, request)).code in (ErrorCode.INVALID_INPUT, ErrorCode.QUORUM)


def test_a_session_of_two_is_refused_by_a_site_that_wants_sums_of_three(five: Rehearsal) -> None:
    request = five.open(SESSION)
    pair = request.model_copy(update={"members": request.members[:2], "threshold": 2})
    assert "could unmask a sum of 2" in refusal(lambda: share(five, pair)).message


def test_the_default_threshold_keeps_every_sum_above_the_minimum() -> None:
    for members in range(3, 200):
        for minimum in {3, max(3, members // 4), max(3, members // 2), members}:
            threshold = threshold_of(None, members=members, minimum=minimum)
            assert members // 2 < threshold <= members
            assert minimum <= smallest_sum(members, threshold) <= threshold
    assert refusal(lambda: threshold_of(None, members=2, minimum=3)).code is ErrorCode.QUORUM
    assert "participants.fraction" in refusal(lambda: threshold_of(None, members=301, minimum=3)).hint


def test_another_list_of_members_for_an_answered_session_is_refused(five: Rehearsal) -> None:
    request = five.open(SESSION)
    assert share(five, request) == share(five, request)
    fewer = five.open(SESSION, ["site-0", "site-1", "site-2", "site-3"])
    assert refusal(lambda: share(five, fewer)).code is ErrorCode.CONFLICT


def test_a_task_of_another_session_or_run_is_refused(five: Rehearsal) -> None:
    payload = five.open(SESSION).encode()
    site = five.sites["site-0"]
    assert "session" in refusal(lambda: site.share(five.run, payload, session="r2-train")).message
    assert "run" in refusal(lambda: site.share("otherrun0000", payload, session=SESSION)).message


def forged_order(session: Session, name: str, alter: Callable[[bytes], bytes]) -> bytes:
    order = MaskOrder.decode(session.orders.payloads[name])
    return order.model_copy(update={"sealed": alter(order.sealed)}).encode()


@pytest.fixture
def shared(five: Rehearsal) -> Session:
    """A session whose members have shared, and masked nothing yet."""
    request = five.open(SESSION)
    return Session(five, request, five.share(request), {})


@pytest.mark.parametrize(
    ("alter", "code"),
    [
        (lambda sealed: sealed[:-1], ErrorCode.INVALID_INPUT),
        (lambda sealed: sealed + bytes(SEALED_BYTES), ErrorCode.INVALID_INPUT),
        (lambda sealed: bytes([sealed[0] ^ 1]) + sealed[1:], ErrorCode.TAMPERED),
        (lambda sealed: sealed[:20] + bytes([sealed[20] ^ 1]) + sealed[21:], ErrorCode.TAMPERED),
        (lambda sealed: sealed[SEALED_BYTES:] + sealed[:SEALED_BYTES], ErrorCode.TAMPERED),
    ],
    ids=["truncated", "one too many", "nonce", "content", "of another sender"],
)
def test_altered_shares_are_refused_before_anything_is_masked(
    shared: Session, alter: Callable[[bytes], bytes], code: ErrorCode
) -> None:
    error = refusal(lambda: shared.masks("site-0", forged_order(shared, "site-0", alter)))
    assert error.code is code


def test_a_share_of_another_session_or_for_another_site_does_not_open(five: Rehearsal) -> None:
    replayed = five.share(five.open("r0-train")).payloads["site-0"]
    request = five.open(SESSION)
    shared = Session(five, request, five.share(request), {})
    old = MaskOrder.decode(replayed).model_copy(update={"session": SESSION}).encode()
    assert refusal(lambda: shared.masks("site-0", old)).code is ErrorCode.TAMPERED
    foreign = MaskOrder.decode(shared.orders.payloads["site-1"]).sealed
    assert refusal(lambda: shared.masks("site-0", forged_order(shared, "site-0", lambda _: foreign))).code is (
        ErrorCode.TAMPERED
    )


@dataclass(frozen=True, slots=True)
class Sealed:
    """What site-0 sealed for site-1, and the checks that it announced to all."""

    request: ShareRequest
    pair: bytes
    sealed: bytes
    checks: bytes

    def opened(self, *, sealed: bytes | None = None, checks: bytes | None = None) -> SharePair:
        return open_share(
            self.request, sender="site-0", receiver="site-1", pair=self.pair, sealed=sealed or self.sealed,
            checks=checks or self.checks,
        )  # fmt: skip

    def sealing(self, content: bytes) -> bytes:
        """Sealed by site-0 as it should be, whatever the content."""
        key = sharing.share_key(self.pair, SESSION, "site-0", "site-1")
        return sharing._seal(key, content, sharing._share_context(SESSION, "site-0", "site-1", self.request.digest))


@pytest.fixture
def sealed(five: Rehearsal) -> Sealed:
    request = five.open(SESSION)
    pairs = {name: os.urandom(32) for name in request.names[1:]}
    answer = make_shares(request, "site-0", pairs, pairs).answer
    announced = answer.checks[2 * CHECK_BYTES : 4 * CHECK_BYTES]
    return Sealed(request, pairs["site-1"], answer.sealed[:SEALED_BYTES], announced)


def test_a_false_share_that_is_sealed_rightly_is_refused_with_its_senders_name(sealed: Sealed) -> None:
    true = sealed.opened()
    for own, wrap in ((bytes(len(true.own)), true.wrap), (true.own, bytes(len(true.wrap))), (true.wrap, true.own)):
        error = refusal(lambda own=own, wrap=wrap: sealed.opened(sealed=sealed.sealing(own + wrap)))
        assert error.code is ErrorCode.TAMPERED
        assert "not the one that site-0 announced" in error.message


@pytest.mark.parametrize("length", [0, shamir.SHARE_BYTES, 2 * shamir.SHARE_BYTES - 1, 2 * shamir.SHARE_BYTES + 1])
def test_a_share_of_another_length_is_refused_although_its_checks_fit(sealed: Sealed, length: int) -> None:
    content = os.urandom(length)
    pair = SharePair(content[: shamir.SHARE_BYTES], content[shamir.SHARE_BYTES :])
    checks = share_checks(SESSION, "site-0", "site-1", pair)
    error = refusal(lambda: sealed.opened(sealed=sealed.sealing(content), checks=checks))
    assert error.code is ErrorCode.TAMPERED
    assert f"share of site-0: {length} bytes" in error.message


def test_the_check_of_a_share_says_which_of_the_two_secrets_it_is_of(sealed: Sealed) -> None:
    made = {sharing.share_check(SESSION, "site-0", "site-1", bytes(33), own=own) for own in (True, False)}
    assert len(made) == 2


def test_pairwise_masks_for_a_second_set_or_task_are_refused(session: Session) -> None:
    payload = session.orders.payloads["site-0"]
    assert session.masks("site-0", payload).payload == session.notes["site-0"].payload
    assert refusal(lambda: session.masks("site-0", payload, task="another")).code is ErrorCode.CONFLICT
    four = {name: session.orders.answers[name].encode() for name in session.request.names[:4]}
    other = order_masks(session.request, four).payloads["site-0"]
    assert refusal(lambda: session.masks("site-0", other)).code is ErrorCode.CONFLICT


NO_PART = {
    "one twice": ("site-0", "site-1", "site-1", "site-2", "site-3"),
    "unsorted": ("site-0", "site-2", "site-1", "site-3", "site-4"),
    "a stranger": ("site-0", "site-1", "site-2", "site-3", "site-9"),
}
"""Lists that are no sorted part of the five. One who is named twice would count twice toward the threshold."""


@pytest.mark.parametrize("members", NO_PART.values(), ids=NO_PART)
def test_members_that_are_no_sorted_part_of_the_session_are_refused(shared: Session, members: tuple[str, ...]) -> None:
    order = MaskOrder.decode(shared.orders.payloads["site-0"]).model_copy(update={"members": members})
    error = refusal(lambda: shared.masks("site-0", order.encode()))
    assert error.code is ErrorCode.INVALID_INPUT
    assert error.message.startswith("members: ")
    assert "a sorted part of the session's members" in error.message


@pytest.mark.parametrize("survivors", NO_PART.values(), ids=NO_PART)
def test_survivors_that_are_no_sorted_part_of_the_members_are_refused(
    session: Session, survivors: tuple[str, ...]
) -> None:
    asked = UnmaskRequest.decode(session.asked(*session.request.names)).model_copy(update={"survivors": survivors})
    error = refusal(lambda: session.unmask("site-0", asked.encode()))
    assert error.code is ErrorCode.INVALID_INPUT
    assert error.message.startswith("survivors: ")
    assert "a sorted part of the session's members" in error.message


def test_a_site_masks_for_a_part_of_the_members_where_nothing_else_is_said(five: Rehearsal) -> None:
    request = five.open(SESSION)
    four = request.names[:4]
    orders = five.share(request, four)
    site = PairwiseSite(five.folder / "site-0", five.signing["site-0"], project=five.project, participant="site-0")
    assert site.masks(five.run, orders.payloads["site-0"], session=SESSION, task="one", asked=ASKED).payload


def test_masks_with_too_few_are_refused(shared: Session) -> None:
    three = {name: shared.orders.answers[name].encode() for name in shared.request.names[:3]}
    payload = order_masks(shared.request, three).payloads["site-0"]
    assert refusal(lambda: shared.masks("site-0", payload)).code is ErrorCode.QUORUM


def test_both_shares_of_one_site_are_never_revealed(session: Session) -> None:
    alive = session.asked("site-0", "site-1", "site-2", "site-3")
    first = session.unmask("site-0", alive)
    assert session.unmask("site-0", alive) == first
    other = session.asked("site-0", "site-1", "site-2", "site-4")
    assert refusal(lambda: session.unmask("site-0", other)).code is ErrorCode.CONFLICT
    restarted = session.all_sites.started("site-0")
    assert restarted.unmask(session.all_sites.run, alive, session=SESSION) == first
    assert refusal(lambda: restarted.unmask(session.all_sites.run, other, session=SESSION)).code is ErrorCode.CONFLICT


def test_a_hub_that_shows_different_survivors_to_different_sites_gets_nothing(session: Session) -> None:
    """Own seed and pair keys of site-4 would take four answers each; there are five sites."""
    names = session.request.names
    with_it, without = session.asked(*names[1:]), session.asked(*names[:4])
    some = {name: session.unmask(name, with_it) for name in names[:2]}
    others = {name: session.unmask(name, without) for name in names[2:]}
    for survivors, answers in ((names[1:], some), (names[:4], others), (names[1:], some | others)):
        recovered = recover(session.request, session.orders.answers, survivors, answers)
        assert recovered.recovery is None
        assert recovered.shares < session.request.threshold


def test_survivors_who_masked_with_other_members_are_refused(five: Rehearsal) -> None:
    """A hub that tells each site another U1 cannot have them unmask: each signed what it masked with."""
    request = five.open(SESSION)
    all_orders = five.share(request)
    four = order_masks(request, {name: all_orders.answers[name].encode() for name in request.names[:4]})
    notes = five.mask(request, all_orders, ["site-0", "site-4"]) | five.mask(
        request, four, ["site-1", "site-2", "site-3"]
    )
    asked = ask_unmask(request, all_orders.members, {name: note.payload for name, note in notes.items()})
    assert asked.refused.keys() == {"site-1", "site-2", "site-3"}
    forged = ask_unmask(request, four.members, {name: notes[name].payload for name in ("site-1", "site-2", "site-3")})
    error = refusal(lambda: five.sites["site-0"].unmask(five.run, forged.payload, session=SESSION))
    assert error.code in (ErrorCode.QUORUM, ErrorCode.TAMPERED)


def test_shares_are_not_revealed_before_the_masks_are_made(shared: Session) -> None:
    notes = shared.all_sites.mask(shared.request, shared.orders, shared.request.names[1:])
    asked = ask_unmask(shared.request, shared.orders.members, {name: note.payload for name, note in notes.items()})
    assert refusal(lambda: shared.unmask("site-0", asked.payload)).code is ErrorCode.CONFLICT


def test_an_ended_session_has_no_secrets_left_on_the_disk(session: Session) -> None:
    run = session.all_sites.folder / "site-0" / session.all_sites.run
    assert (run / f"{SESSION}.session").exists()
    session.unmask("site-0", session.asked(*session.request.names))
    assert sorted(path.name for path in run.iterdir()) == ["key", f"{SESSION}.over"]
    assert refusal(lambda: share(session.all_sites, session.request)).code is ErrorCode.GONE
    assert refusal(lambda: session.masks("site-0", session.orders.payloads["site-0"])).code is ErrorCode.GONE


def test_a_session_that_was_given_up_is_ended_by_the_next_one(session: Session) -> None:
    """Otherwise late answers to its UNMASK would give a second sum of the same updates, of another set."""
    later = session.all_sites
    later.share(later.open("r1-train-s2"))
    error = refusal(lambda: session.unmask("site-0", session.asked(*session.request.names)))
    assert error.code is ErrorCode.GONE
    run = later.folder / "site-0" / later.run
    assert [path.name for path in run.glob("*.session")] == ["r1-train-s2.session"]


def test_a_restarted_site_goes_on_where_it_stood(shared: Session) -> None:
    site = shared.all_sites.started("site-0")
    run = shared.all_sites.run
    first = site.masks(run, shared.orders.payloads["site-0"], session=SESSION, task="one", asked=ASKED)
    again = shared.all_sites.started("site-0").masks(
        run, shared.orders.payloads["site-0"], session=SESSION, task="one", asked=ASKED
    )
    assert first.payload == again.payload


def test_a_site_that_lost_its_disk_refuses_the_session_and_has_a_new_key(shared: Session, tmp_path: Path) -> None:
    own = shared.all_sites
    fresh = PairwiseSite(tmp_path / "new", own.signing["site-0"], project=own.project, participant="site-0")
    error = refusal(
        lambda: fresh.masks(own.run, shared.orders.payloads["site-0"], session=SESSION, task="one", asked=ASKED)
    )
    assert error.code is ErrorCode.GONE
    assert fresh.advertise(own.run) != own.sites["site-0"].advertise(own.run)


def test_forgetting_a_run_erases_its_key(five: Rehearsal) -> None:
    site = five.sites["site-0"]
    before = site.advertise(five.run)
    assert site.advertise(five.run) == before
    five.mask(request := five.open("r1-train"), five.share(request))
    others = {("b" * 12, "site-1", b"key"): b"of another run"}
    assert site._pairs
    site._pairs |= others
    site.forget(five.run)
    assert site._pairs == others
    assert not (five.folder / "site-0" / five.run).exists()


def test_the_pinned_roster_is_the_one_that_a_compensator_checks_too(five: Rehearsal) -> None:
    keys = sorted(five.identities.values())
    assert roster_digest(keys) == hashlib.sha256(b"".join(keys)).digest()


def test_adverts_with_wrong_signatures_are_left_out_by_name(five: Rehearsal) -> None:
    adverts = {name: five.sites[name].advertise(five.run) for name in five.sites}
    adverts["site-1"], adverts["site-9"] = adverts["site-2"], adverts["site-2"]
    read = read_adverts(five.project, five.run, five.identities, adverts)
    assert [member.participant for member in read.members] == ["site-0", "site-2", "site-3", "site-4"]
    assert read.refused.keys() == {"site-1", "site-9"}


def test_false_revealed_shares_are_refused_by_name_and_the_others_suffice(session: Session) -> None:
    asked = session.asked(*session.request.names[:4])
    revealed = {name: session.unmask(name, asked) for name in session.request.names}
    true = UnmaskAnswer.decode(revealed["site-1"]).shares
    for shares in (true[:-1], bytes([true[0] ^ 1]) + true[1:], true[33:] + true[:33]):
        forged = revealed | {"site-1": UnmaskAnswer(shares=shares).encode()}
        recovered = recover(session.request, session.orders.answers, session.request.names[:4], forged)
        assert recovered.refused.keys() == {"site-1"}
        assert recovered.recovery is not None


def test_a_site_whose_secrets_are_unusable_is_named_and_the_step_redone(session: Session) -> None:
    survivors = session.request.names[:4]
    revealed = {name: session.unmask(name, session.asked(*survivors)) for name in survivors}
    answers = dict(session.orders.answers)
    answers["site-4"] = answers["site-4"].model_copy(update={"wrapped": bytes(len(answers["site-4"].wrapped))})
    recovered = recover(session.request, answers, survivors, revealed)
    assert recovered.recovery is None
    assert recovered.refused.keys() == {"site-4"}


def test_malformed_answers_are_left_out_by_name(five: Rehearsal) -> None:
    request = five.open(SESSION)
    answers = {name: share(five, request, name) for name in request.names}
    answers["site-2"] = b"{}"
    orders = order_masks(request, answers)
    assert orders.members == ("site-0", "site-1", "site-3", "site-4")
    assert orders.refused.keys() == {"site-2"}
