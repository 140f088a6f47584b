"""Shares that are not what their sender made are refused, and masks are made once, for one set and one task."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from hanse_fabric.errors import ErrorCode
from hanse_privacy.pairwise import shamir
from hanse_privacy.pairwise import shares as sharing
from hanse_privacy.pairwise.coordination import order_masks
from hanse_privacy.pairwise.keys import share_key
from hanse_privacy.pairwise.messages import MaskOrder, ShareRequest
from hanse_privacy.pairwise.shares import CHECK_BYTES, SEALED_BYTES, SharePair, make_shares, open_share, share_checks
from hanse_privacy.pairwise.site import PairwiseSite
from pairwise_sites import ASKED, NO_PART, SESSION, Rehearsal, Session, refusal, share


def forged_order(session: Session, name: str, alter: Callable[[bytes], bytes]) -> bytes:
    order = MaskOrder.decode(session.orders.payloads[name])
    return order.model_copy(update={"sealed": alter(order.sealed)}).encode()


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


@pytest.mark.parametrize(("asked", "purpose"), [(None, b"agreement"), (b"a" * 32, b"agreement 2")])
def test_what_sites_sign_of_a_session_is_as_in_every_release(
    five: Rehearsal, asked: bytes | None, purpose: bytes
) -> None:
    """Sites of two releases sign the same; and without what they answer it is that of release 0.1.0."""
    request, members = five.open(SESSION), ["site-0", "site-1"]
    told = [b"hanse pairwise", purpose, *(part.encode() for part in (request.project, request.run, SESSION))]
    named = hashlib.sha256(b"site-0\x1fsite-1").digest()
    statement = sharing.agreement_statement(request, members, asked)
    assert statement == b"\x1f".join([*told, request.digest + named + (asked or b"")])


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
        key = share_key(self.pair, SESSION, "site-0", "site-1")
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


def test_malformed_answers_are_left_out_by_name(five: Rehearsal) -> None:
    request = five.open(SESSION)
    answers = {name: share(five, request, name) for name in request.names}
    answers["site-2"] = b"{}"
    orders = order_masks(request, answers)
    assert orders.members == ("site-0", "site-1", "site-3", "site-4")
    assert orders.refused.keys() == {"site-2"}


def test_pairwise_masks_for_a_second_set_or_task_are_refused(session: Session) -> None:
    payload = session.orders.payloads["site-0"]
    assert session.masks("site-0", payload).payload == session.notes["site-0"].payload
    assert refusal(lambda: session.masks("site-0", payload, task="another")).code is ErrorCode.CONFLICT
    four = {name: session.orders.answers[name].encode() for name in session.request.names[:4]}
    other = order_masks(session.request, four).payloads["site-0"]
    assert refusal(lambda: session.masks("site-0", other)).code is ErrorCode.CONFLICT


@pytest.mark.parametrize("members", NO_PART.values(), ids=NO_PART)
def test_members_that_are_no_sorted_part_of_the_session_are_refused(shared: Session, members: tuple[str, ...]) -> None:
    order = MaskOrder.decode(shared.orders.payloads["site-0"]).model_copy(update={"members": members})
    error = refusal(lambda: shared.masks("site-0", order.encode()))
    assert error.code is ErrorCode.INVALID_INPUT
    assert error.message.startswith("members: ")
    assert "a sorted part of the session's members" in error.message


def test_a_site_masks_for_a_part_of_the_members_where_nothing_else_is_said(five: Rehearsal) -> None:
    request = five.open(SESSION)
    four = request.names[:4]
    orders = five.share(request, four)
    site = PairwiseSite(
        five.folder / "site-0", five.signing["site-0"], project=five.project, participant="site-0", minimum=3
    )
    assert site.masks(five.run, orders.payloads["site-0"], session=SESSION, task="one", asked=ASKED).payload


def test_masks_with_too_few_are_refused(shared: Session) -> None:
    three = {name: shared.orders.answers[name].encode() for name in shared.request.names[:3]}
    payload = order_masks(shared.request, three).payloads["site-0"]
    assert refusal(lambda: shared.masks("site-0", payload)).code is ErrorCode.QUORUM


def test_a_restarted_site_goes_on_where_it_stood(shared: Session) -> None:
    site = shared.all_sites.started("site-0")
    run = shared.all_sites.run
    first = site.masks(run, shared.orders.payloads["site-0"], session=SESSION, task="one", asked=ASKED)
    again = shared.all_sites.started("site-0").masks(
        run, shared.orders.payloads["site-0"], session=SESSION, task="one", asked=ASKED
    )
    assert first.payload == again.payload
