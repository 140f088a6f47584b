"""Whatever a hub says of survivors, a pairwise site reveals what unmasks one sum, once, and then has nothing left."""

from __future__ import annotations

from pathlib import Path

import pytest

from hanse_fabric.errors import ErrorCode
from hanse_privacy.pairwise.coordination import ask_unmask, order_masks
from hanse_privacy.pairwise.messages import UnmaskAnswer, UnmaskRequest
from hanse_privacy.pairwise.recovering import recover
from hanse_privacy.pairwise.site import PairwiseSite
from pairwise_sites import ASKED, NO_PART, SESSION, Rehearsal, Session, refusal, share


@pytest.mark.parametrize("survivors", NO_PART.values(), ids=NO_PART)
def test_survivors_that_are_no_sorted_part_of_the_members_are_refused(
    session: Session, survivors: tuple[str, ...]
) -> None:
    asked = UnmaskRequest.decode(session.asked(*session.request.names)).model_copy(update={"survivors": survivors})
    error = refusal(lambda: session.unmask("site-0", asked.encode()))
    assert error.code is ErrorCode.INVALID_INPUT
    assert error.message.startswith("survivors: ")
    assert "a sorted part of the session's members" in error.message


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


def test_a_site_that_lost_its_disk_refuses_the_session_and_has_a_new_key(shared: Session, tmp_path: Path) -> None:
    own = shared.all_sites
    fresh = PairwiseSite(tmp_path / "new", own.signing["site-0"], project=own.project, participant="site-0", minimum=3)
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
