"""A hub that makes the noise of a sum smaller than the sites' ledgers are charged for: it has sites exchange noise
(`privacy.noise: oblivious`) on small terms, and sum on others; or it gives a parameter a finer grid than that on which
noise is drawn; or it has updates rotated, which makes them longer in the norm of Laplace noise.

Sites draw what they exchange before the answer that it is for. If its scale is that of the terms that the exchange was
asked with, the sum has next to no noise. So it has if noise of so many steps is added in a ring whose steps are small.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub, Results, payloads, refusals
from hanse_fabric.messages import HiddenFailure, PrivacyTerms, RingPlan, TaskKind
from hanse_fabric.messages.masking import Ring
from hanse_fabric.messages.privacy import Privacy
from hanse_learning.binding import work_digest
from hanse_privacy.noise import exchange
from hanse_privacy.noise import site as site_module
from hanse_privacy.noise.aggregate import noise_tail
from hanse_privacy.noise.exchange_messages import noise_request, relay
from hanse_privacy.ring import files
from hanse_privacy.ring.codec import decode
from hanse_privacy.ring.plan import make_plan
from hanse_privacy.ring.rotation import Rotation
from hanse_schemas.secure_aggregation import SecureAggregation

SESSION, SCALE = "s1", 8.0


def terms(multiplier: float) -> PrivacyTerms:
    privacy = Privacy(
        placement="distributed", mechanism="discrete_laplace", noise="oblivious", noise_multiplier=multiplier, delta=0
    )
    return PrivacyTerms(privacy=privacy, rounds=1, round=1, active=4)


CHARGED, DRAWN = terms(SCALE), terms(SCALE / 1000)


def plan() -> RingPlan:
    settings = SecureAggregation(mode="compensator", bits=64, bound=64.0)
    return make_plan(settings, participants=4, weighting="uniform", tail=noise_tail(CHARGED))


async def exchanged(hub: LyingHub, drawn: PrivacyTerms) -> dict[str, bytes]:
    """What each site is to be given of the others' noise, which was drawn on some terms."""
    how: dict[str, Any] = {"session": SESSION, "plan": plan(), "privacy": drawn}
    names = hub.stage.names
    keys = await hub.ask(*(hub.task(name, "keys", kind=TaskKind.ADVERTISE, **how) for name in names))
    identities = {name: site.identity.signing_key.public_bytes for name, site in hub.stage.sites.items()}
    work = work_digest(hub.task(names[0], model=MODEL))
    request, _ = noise_request(hub.stage.project, hub.stage.run, SESSION, payloads(keys), identities, work=work)
    assert request is not None
    data = base64.b64encode(request.encode())
    tasks = [hub.task(name, "noise", kind=TaskKind.SHARE, model=MODEL, payload=data, **how) for name in names]
    shares = await hub.ask(*tasks)
    assert refusals(shares) == {}
    return relay(request, payloads(shares))[0]


async def answered(hub: LyingHub, drawn: PrivacyTerms) -> Results:
    """The answers, charged as `CHARGED` says."""
    given = await exchanged(hub, drawn)
    how: dict[str, Any] = {"session": SESSION, "plan": plan(), "privacy": CHARGED, "model": MODEL}
    return await hub.ask(*(hub.task(name, payload=base64.b64encode(given[name]), **how) for name in hub.stage.names))


async def noise_left(hub: LyingHub, drawn: PrivacyTerms) -> float:
    """Mean absolute noise of a number in the sum."""
    total = await hub.sum(await answered(hub, drawn), SESSION, plan())
    made = [site.update(MODEL) for site in hub.stage.sites.values()]
    plain = np.sum([update / max(1.0, np.abs(update).sum()) for update in made], axis=0)
    return float(np.abs(total - plain).mean())


async def test_an_honest_exchange_makes_the_noise_that_is_charged(attacked: Attacked) -> None:
    async with attacked() as hub:
        assert await noise_left(hub, CHARGED) > SCALE / 4


async def test_noise_that_was_drawn_on_other_terms_than_are_charged_is_not_answered_with(attacked: Attacked) -> None:
    async with attacked() as hub:
        refused = refusals(await answered(hub, DRAWN))
        assert refused.keys() == set(hub.stage.names)
        assert all("noise of" in reason and "is charged for" in reason for reason in refused.values()), refused


@pytest.mark.control("test_noise_that_was_drawn_on_other_terms_than_are_charged_is_not_answered_with")
async def test_control_where_nobody_looks_at_its_scale_a_sum_that_was_paid_for_has_next_to_no_noise(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "check_scale", lambda *_: None)
    async with attacked() as hub:
        assert await noise_left(hub, DRAWN) < SCALE / 20


FINER = 20
"""Bits by which the steps of one parameter's ring are smaller than those of all others'."""


async def noise_on_a_finer_grid(hub: LyingHub) -> tuple[float | None, str]:
    """Mean absolute noise of a number of the sum, where each site draws its share alone; or why there is no sum."""
    privacy = Privacy(placement="distributed", mechanism="discrete_gaussian", noise_multiplier=SCALE)
    shares = PrivacyTerms(privacy=privacy, rounds=1, round=1, active=4)
    coarse = Ring(bits=64, fraction=16, bound=64.0)
    fine = coarse.model_copy(update={"fraction": coarse.fraction + FINER})
    made = hub.plan(bits=64).model_copy(update={"default": coarse, "entries": {"weight": fine}})
    names = hub.stage.names
    results = await hub.ask(
        *(hub.task(name, session=SESSION, plan=made, privacy=shares, model=MODEL) for name in names)
    )
    if refusals(results):
        return None, "; ".join(refusals(results).values())
    masks = await hub.masks(await hub.ask_masks(results, SESSION))
    total = decode(await hub.total(results) - masks, fine)
    plain = np.sum([hub.stage.sites[name].update(MODEL, clip=1.0) for name in names], axis=0)
    return float(np.abs(total - plain).mean()), ""


async def test_no_parameter_has_another_ring_than_that_which_its_noise_is_drawn_for(attacked: Attacked) -> None:
    async with attacked() as hub:
        left, why = await noise_on_a_finer_grid(hub)
        assert left is None
        assert HiddenFailure.FAILED.text in why


@pytest.mark.control("test_no_parameter_has_another_ring_than_that_which_its_noise_is_drawn_for")
async def test_control_where_a_parameter_may_have_a_finer_ring_a_sum_that_was_paid_for_has_next_to_no_noise(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "check_common_ring", lambda *_: None)
    async with attacked() as hub:
        left, why = await noise_on_a_finer_grid(hub)
        assert left is not None, why
        assert left < SCALE / 1000


async def rotated(hub: LyingHub) -> Results:
    """The answers to a hub that rotates updates which are clipped for Laplace noise."""
    privacy = Privacy(
        placement="distributed", mechanism="discrete_laplace", noise="local-laplace", noise_multiplier=SCALE, delta=0
    )
    shares = PrivacyTerms(privacy=privacy, rounds=1, round=1, active=4)
    made = plan().model_copy(update={"rotation": "ab" * 32})
    return await hub.ask(
        *(hub.task(n, session=SESSION, plan=made, privacy=shares, model=MODEL) for n in hub.stage.names)
    )


async def test_no_update_is_rotated_that_laplace_noise_hides(attacked: Attacked) -> None:
    async with attacked() as hub:
        refused = refusals(await rotated(hub))
        assert refused.keys() == set(hub.stage.names)
        assert all("ring.rotation" in why for why in refused.values()), refused


@pytest.mark.control("test_no_update_is_rotated_that_laplace_noise_hides")
async def test_control_where_nobody_looks_an_update_has_more_than_was_charged_for(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_module, "check_rotation", lambda *_: None)
    async with attacked() as hub:
        assert refusals(await rotated(hub)) == {}
    # An update of one number has the norm 1 that is charged for; rotated, all of its magnitudes together are more.
    spike = np.eye(1, len(MODEL))[0]
    assert np.abs(Rotation(bytes(32)).rotate(spike, 0)).sum() > 1.5
