"""Noise that sites draw for each other: whole, sealed, used once; what the hub can do to it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey
from hanse_privacy.attacks.coalition import Coalition, pooled
from hanse_privacy.masks.seal import roster_digest
from hanse_privacy.noise.exchange import NoiseSite
from hanse_privacy.noise.exchange_messages import (
    NoiseKey,
    NoiseRequest,
    NoiseShares,
    key_statement,
    noise_request,
    relay,
)
from hanse_privacy.noise.shuffled import unpack
from hanse_privacy.noise.source import NoiseSource

RUN, SESSION, STEPS = "a" * 12, "r1-train", 1 << 16


@dataclass
class Session:
    """Sites that have advertised, and what the hub makes of it."""

    sites: dict[str, NoiseSite]
    keys: dict[str, SigningKey]
    adverts: dict[str, bytes]

    @classmethod
    def of(cls, count: int = 4, *, pinned: bool = False) -> Session:
        keys = {f"site-{index}": SigningKey.create() for index in range(count)}
        digest = roster_digest([key.public_bytes for key in keys.values()]) if pinned else None
        sites = {name: NoiseSite(key, project="triage", participant=name, roster=digest) for name, key in keys.items()}
        return cls(sites, keys, {name: site.advertise(RUN, SESSION) for name, site in sites.items()})

    def request(self) -> NoiseRequest:
        identities = {name: key.public_bytes for name, key in self.keys.items()}
        request, refused = noise_request("triage", RUN, SESSION, self.adverts, identities)
        assert refused == ()
        assert request is not None
        return request

    def share(self, name: str, request: NoiseRequest, *, steps: int = STEPS, count: int = 50) -> bytes:
        return self.sites[name].share(RUN, request.encode(), session=SESSION, steps=steps, count=count)

    def shared(self, request: NoiseRequest, **options: int) -> dict[str, bytes]:
        return {name: self.share(name, request, **options) for name in self.sites}

    def draw(self, name: str, payload: bytes) -> np.ndarray:
        return self.sites[name].draw(RUN, payload, session=SESSION, steps=STEPS)


def test_the_sum_of_all_noise_is_one_whole_laplace_of_each_site() -> None:
    session = Session.of(4)
    request = session.request()
    given, refused = relay(request, session.shared(request, count=5000))
    assert refused == ()
    total = sum(session.draw(name, payload) for name, payload in given.items()) / STEPS
    assert total.var() / 2 == pytest.approx(4, rel=0.15)


def test_sites_that_pool_what_they_sent_and_opened_leave_one_laplace_of_a_true_exchange() -> None:
    """What `hanse audit collusion` plays without messages: the members pool what they drew, opened and chose."""
    session, count = Session.of(5), 4000
    request = session.request()
    given, _ = relay(request, session.shared(request, count=count))
    names = sorted(session.sites)

    def opened(receiver: str, sender: str) -> np.ndarray:
        site, others = session.sites[receiver], [name for name in names if name != receiver]
        kept = site._sessions[RUN, SESSION]
        member = {member.participant: member for member in request.members}[sender]
        sealed = NoiseShares.decode(given[receiver]).sealed[others.index(sender)]
        return unpack(site._open(kept, RUN, SESSION, member, sealed))

    victim, members = names[0], names[1:]
    sent = np.concatenate([opened(victim, member) for member in members])  # the members drew it: they know it
    received = np.concatenate([opened(member, victim) for member in members])
    added = np.stack([session.sites[member]._sessions[RUN, SESSION].added for member in members])
    drawn = {name: session.draw(name, given[name]) for name in names}
    chosen = np.sum([drawn[name] for name in members], axis=0) - added.sum(axis=0)
    total = np.sum(list(drawn.values()), axis=0)
    none = np.zeros((0, count), dtype=np.int64)
    coalition = Coalition(total, np.zeros_like(added), added, none, chosen, sent, received)
    assert total.var() / STEPS**2 / 2 == pytest.approx(5, rel=0.15)
    assert pooled(coalition, NoiseSource()).var() / STEPS**2 / 2 == pytest.approx(1, rel=0.15)


def test_a_site_that_drops_out_after_sharing_leaves_the_others_noise_whole() -> None:
    session = Session.of(4)
    request = session.request()
    shares = session.shared(request, count=5000)
    del shares["site-3"]
    given, _ = relay(request, shares)
    assert sorted(given) == ["site-0", "site-1", "site-2"]
    total = sum(session.draw(name, payload) for name, payload in given.items()) / STEPS
    assert total.var() / 2 == pytest.approx(3, rel=0.15)


def test_a_site_adds_the_noise_it_was_given_to_its_own() -> None:
    session, again = Session.of(3), NoiseShares(sealed=(b"", b"")).encode()
    request = session.request()
    given, _ = relay(request, session.shared(request))
    kept = session.sites["site-0"]._sessions[RUN, SESSION].added.copy()
    assert not np.array_equal(session.draw("site-0", given["site-0"]), kept)
    other = session.sites["site-1"]._sessions[RUN, SESSION].added.copy()
    assert np.array_equal(session.draw("site-1", again), other)  # nothing was given: its own stands


def test_the_hub_sees_no_noise() -> None:
    session = Session.of(3)
    request = session.request()
    first, second = session.share("site-0", request), Session.of(3)
    assert len(first) == len(second.share("site-0", second.request()))  # as long, whatever is in it
    assert session.share("site-0", request) == first  # the same bytes again
    zeros = np.frombuffer(NoiseShares.decode(first).sealed[0], dtype=np.uint8)
    assert np.unique(zeros).size > 50


def test_drawn_noise_is_refused_a_second_time() -> None:
    session = Session.of(3)
    request = session.request()
    given, _ = relay(request, session.shared(request))
    session.draw("site-0", given["site-0"])
    with pytest.raises(HanseError, match="has used it") as caught:
        session.draw("site-0", given["site-0"])
    assert caught.value.code is ErrorCode.GONE


def test_another_request_of_a_session_is_refused() -> None:
    session = Session.of(4)
    request = session.request()
    session.share("site-0", request)
    fewer = NoiseRequest(members=request.members[:3], roster=request.roster)
    with pytest.raises(HanseError, match="other members already"):
        session.share("site-0", fewer)


def test_a_site_that_was_started_again_takes_no_part() -> None:
    session = Session.of(3)
    request = session.request()
    given, _ = relay(request, session.shared(request))
    session.sites["site-0"] = NoiseSite(session.keys["site-0"], project="triage", participant="site-0")
    for act in (lambda: session.draw("site-0", given["site-0"]), lambda: session.share("site-0", request)):
        with pytest.raises(HanseError, match="no noise for it"):
            act()


def test_keys_that_their_owners_did_not_sign_are_left_out_by_the_hub_and_refused_by_sites() -> None:
    session, stranger = Session.of(4), Session.of(4)
    identities = {name: key.public_bytes for name, key in session.keys.items()}
    adverts = session.adverts | {"site-3": stranger.adverts["site-3"]}
    request, refused = noise_request("triage", RUN, SESSION, adverts, identities)
    assert refused == ("site-3",)
    assert request is not None
    assert len(request.members) == 3
    key = NoiseKey.decode(stranger.adverts["site-1"])
    forged = request.members[1].model_copy(update={"key": key.key, "signature": key.signature})
    members = (request.members[0], forged, request.members[2])
    with pytest.raises(HanseError, match="noise key of site-1"):
        session.share("site-0", NoiseRequest(members=members, roster=request.roster))
    assert noise_request("triage", RUN, SESSION, {}, identities)[0] is None


def test_a_request_without_the_sites_own_key_is_refused() -> None:
    session = Session.of(4)
    request = session.request()
    with pytest.raises(HanseError, match="not there with its own key"):
        session.share("site-0", NoiseRequest(members=request.members[1:], roster=request.roster))


def test_a_key_that_makes_every_secret_known_is_refused() -> None:
    session = Session.of(3)
    low = bytes(32)  # a point of low order
    signature = session.keys["site-1"].sign(key_statement("triage", RUN, SESSION, "site-1", low))
    session.adverts["site-1"] = NoiseKey(key=low, signature=signature).encode()
    with pytest.raises(HanseError, match="point of low order"):
        session.share("site-0", session.request())


def test_a_pinned_roster_keeps_invented_sites_out() -> None:
    session, invented = Session.of(3, pinned=True), SigningKey.create()
    request = session.request()
    session.share("site-0", request)
    fake = NoiseSite(invented, project="triage", participant="site-9")
    identities = {name: key.public_bytes for name, key in session.keys.items()}
    adverts = session.adverts | {"site-9": fake.advertise(RUN, SESSION)}
    with_fake, _ = noise_request("triage", RUN, SESSION, adverts, identities | {"site-9": invented.public_bytes})
    assert with_fake is not None
    with pytest.raises(HanseError, match="roster: the keys are not those"):
        session.share("site-1", with_fake)
    hidden = NoiseRequest(members=with_fake.members, roster=request.roster)
    with pytest.raises(HanseError, match="key of site-9: it is not on the pinned roster"):
        session.share("site-1", hidden)


def test_noise_that_was_changed_or_is_for_another_does_not_open() -> None:
    session = Session.of(3)
    request = session.request()
    given, _ = relay(request, session.shared(request))
    one, two = NoiseShares.decode(given["site-0"]).sealed
    for wrong in ((two, one), (one, two[:-1]), (one, b"\0" + two[1:])):
        with pytest.raises(HanseError, match="does not open"):
            session.draw("site-0", NoiseShares(sealed=wrong).encode())
    with pytest.raises(HanseError, match="of 1 sites"):
        session.draw("site-0", NoiseShares(sealed=(one,)).encode())


def test_malformed_noise_shares_are_named_and_left_out() -> None:
    session = Session.of(4)
    request = session.request()
    shares = session.shared(request)
    shares |= {"site-1": b"{}", "site-2": NoiseShares(sealed=(b"",)).encode()}
    given, refused = relay(request, shares)
    assert sorted(given) == ["site-0", "site-3"]
    assert refused == ("site-1", "site-2")
    session.draw("site-0", given["site-0"])


def test_models_that_do_not_fit_a_message_are_refused() -> None:
    session = Session.of(4)
    most = Session.of(4)
    assert len(most.share("site-0", most.request(), count=20_480, steps=1000)) < 256 << 10  # a payload's limit
    with pytest.raises(HanseError, match="at most 20480 parameters can be sent") as caught:
        session.share("site-0", session.request(), count=20_481, steps=1000)
    assert caught.value.code is ErrorCode.TOO_LARGE
