"""A hub that opens a session with false keys, members or a threshold too low is refused by each pairwise site."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from hanse_fabric.errors import ErrorCode
from hanse_fabric.identity.keys import SigningKey
from hanse_privacy.masks.seal import roster_digest
from hanse_privacy.pairwise.coordination import read_adverts
from hanse_privacy.pairwise.keys import RunKey, advert_statement
from hanse_privacy.pairwise.messages import ShareRequest
from hanse_privacy.pairwise.site import PairwiseSite
from hanse_privacy.pairwise.thresholds import smallest_sum, threshold_of
from pairwise_sites import ASKED, SESSION, Rehearsal, Session, refusal, share

LOW_ORDER = bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800")


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
    key, another = RunKey.create().public_bytes, SigningKey.create()
    own = five.open(SESSION).members[0].key
    signed = {
        name: signing.sign(advert_statement(five.project, five.run, "site-0", key_of_it))
        for name, signing, key_of_it in (("key", five.signing["site-0"], key), ("identity", another, own))
    }
    other_key = altered(five.open(SESSION), "site-0", key=key, signature=signed["key"])
    other_identity = altered(
        five.open(SESSION), "site-0", identity=another.public_bytes, signature=signed["identity"]
    )  # fmt: skip
    for request in (without, other_key, other_identity):
        error = refusal(lambda request=request: share(five, request))
        assert error.code is ErrorCode.TAMPERED
        assert error.message == "members: site-0 is not there with its own keys"


def test_sites_that_pin_no_roster_sum_with_whoever_the_hub_says_is_enrolled(tmp_path: Path) -> None:
    sites = Rehearsal(tmp_path, ["east", "north", "south"], pinned=False)
    request = sites.open(SESSION)
    orders = sites.share(request)
    _, recovered = sites.unmask(request, orders, sites.mask(request, orders))
    assert recovered.recovery is not None


def test_a_request_of_another_project_is_refused_by_its_name(five: Rehearsal) -> None:
    error = refusal(lambda: share(five, five.open(SESSION).model_copy(update={"project": "another"})))
    assert error.code is ErrorCode.INVALID_INPUT
    assert error.message == "project: 'another' is not that of the task, rehearsal"


def test_what_a_site_masks_and_unmasks_is_of_the_session_that_its_task_names(session: Session) -> None:
    site, run = session.all_sites.sites["site-0"], session.all_sites.run
    order, asked = session.orders.payloads["site-0"], session.asked(*session.request.names)
    for call in (
        lambda: site.masks(run, order, session="r2-train", task="one", asked=ASKED),
        lambda: site.unmask(run, asked, session="r2-train"),
    ):
        error = refusal(call)
        assert error.code is ErrorCode.INVALID_INPUT
        assert error.message == f"session: '{SESSION}' is not that of the task, r2-train"


def test_a_minimum_that_was_raised_after_secrets_were_shared_holds_for_the_masks(shared: Session) -> None:
    """Of five with a threshold of four, a hub that lies could unmask a sum of four."""
    shared.all_sites.minimum = 5
    shared.all_sites.sites["site-0"] = shared.all_sites.started("site-0")
    error = refusal(lambda: shared.masks("site-0", shared.orders.payloads["site-0"]))
    assert error.code is ErrorCode.INVALID_INPUT
    assert "could unmask a sum of 4" in error.message


@pytest.mark.parametrize(("given", "gap", "colluding"), [({}, 3, 0), ({"colluding": 1}, 4, 1)])
def test_a_difference_of_two_sums_must_speak_of_the_minimum_and_of_those_who_may_collude(
    five: Rehearsal, given: dict[str, int], gap: int, colluding: int
) -> None:
    orders = five.share(five.open(SESSION))
    site = PairwiseSite(
        five.folder / "site-0", five.signing["site-0"], project=five.project, participant="site-0", minimum=3, **given
    )
    among = site.masks(five.run, orders.payloads["site-0"], session=SESSION, task="one", asked=ASKED).among
    assert (len(among.members), among.threshold, among.gap, among.colluding) == (5, 4, gap, colluding)


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


def test_the_pinned_roster_is_the_one_that_a_compensator_checks_too(five: Rehearsal) -> None:
    keys = sorted(five.identities.values())
    assert roster_digest(keys) == hashlib.sha256(b"".join(keys)).digest()


def test_adverts_with_wrong_signatures_are_left_out_by_name(five: Rehearsal) -> None:
    adverts = {name: five.sites[name].advertise(five.run) for name in five.sites}
    adverts["site-1"], adverts["site-9"] = adverts["site-2"], adverts["site-2"]
    read = read_adverts(five.project, five.run, five.identities, adverts)
    assert [member.participant for member in read.members] == ["site-0", "site-2", "site-3", "site-4"]
    assert read.refused.keys() == {"site-1", "site-9"}
