"""Sites that give the hub all that they know (attack 10): ten sites, a threshold of seven, three that collude.

They give both shares of everybody, so the hub needs four honest answers of each kind. It tells each honest site other
survivors, so that five are dropped for four of them each, and unmasks a sum with two honest sites in it.
"""

from __future__ import annotations

import base64

import numpy as np
import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub, Results, half_step, payloads, refusals
from adversary.stage import Array
from hanse_fabric.messages import MaskingMode, TaskKind
from hanse_privacy.masks.bound import bound_seed
from hanse_privacy.pairwise import shamir, thresholds
from hanse_privacy.pairwise.coordination import Orders
from hanse_privacy.pairwise.messages import Agreement, ShareRequest, UnmaskAnswer, UnmaskRequest, records
from hanse_privacy.pairwise.shares import SharePair, unwrap_keys
from hanse_privacy.pairwise.site import PairwiseSite
from hanse_privacy.pairwise.streams import Masks
from hanse_privacy.ring.codec import decode

THRESHOLD, COLLUDING = 7, 3
FEARFUL = {"sites": 10, "masking": {"colluding": COLLUDING}}


def known_to(hub: LyingHub, name: str) -> dict[str, SharePair]:
    """Both shares of everybody's secrets, from a colluding site's own folder."""
    site = hub.stage.sites[name]
    own = PairwiseSite(
        site.home / "pairwise", site.identity.signing_key, project=hub.stage.project, participant=name, minimum=3
    )  # fmt: skip
    folder = own._run(hub.stage.run)
    state = folder.require("s1")
    assert state.order is not None
    return own._open_all(state, state.order, folder.key(), hub.stage.run)


async def revealed(
    hub: LyingHub, request: ShareRequest, signed: dict[str, Agreement], dropped: dict[str, set[str]]
) -> dict[str, dict[str, bytes]]:
    """Each honest site's shares, of the own seed of who survives in what it was told, else of the wrapping secret."""
    tasks = []
    for name, gone in dropped.items():
        left = [each for each in request.names if each not in gone]
        asked = UnmaskRequest.model_construct(
            session="s1", survivors=tuple(left), agreements=b"".join(signed[each].signature for each in left)
        )
        tasks.append(hub.protocol(name, TaskKind.UNMASK, request, asked.encode()))
    told = payloads(await hub.ask(*tasks))
    return {
        name: records(UnmaskAnswer.decode(payload).shares, shamir.SHARE_BYTES, request.names, what=name)
        for name, payload in told.items()
    }


def secret_of(request: ShareRequest, shares: dict[str, bytes]) -> bytes:
    chosen = dict(sorted((request.abscissa(name), share) for name, share in shares.items())[:THRESHOLD])
    return shamir.combine(chosen, threshold=THRESHOLD, weights=shamir.coefficients(sorted(chosen)))


async def sum_of_two(hub: LyingHub) -> tuple[Array | None, str]:
    """The sum of the updates of two honest sites, or why there is none."""
    names = hub.stage.names
    honest, colluders = names[:-COLLUDING], names[-COLLUDING:]
    alive, victims = [*honest[:2], *colluders], honest[2:]
    request = hub.share_request(await hub.adverts(names), "s1", threshold=THRESHOLD)
    shares = [hub.protocol(name, TaskKind.SHARE, request, request.encode()) for name in names]
    refused = refusals(await hub.ask(*shares))
    if refused:
        return None, "; ".join(refused.values())
    orders = await hub.shared(request)
    results = await hub.ask(
        *(
            hub.task(name, model=MODEL, mode=MaskingMode.PAIRWISE, session="s1",
                     payload=base64.b64encode(orders.payloads[name]))
            for name in names
        )
    )  # fmt: skip
    signed = {name: Agreement.decode(payload) for name, payload in payloads(results).items()}
    dropped = {name: {victims[(3 * at + step) % 5] for step in range(3)} for at, name in enumerate(honest)}
    told = await revealed(hub, request, signed, dropped)
    both = {name: known_to(hub, name) for name in colluders}
    own = {
        name: secret_of(
            request,
            {each: both[each][name].own for each in colluders}
            | {each: told[each][name] for each in honest if name not in dropped[each]},
        )
        for name in alive
    }
    wraps = {
        name: secret_of(
            request,
            {each: both[each][name].wrap for each in colluders}
            | {each: told[each][name] for each in honest if name in dropped[each]},
        )
        for name in victims
    }
    total = await unmasked(hub, request, orders, {name: results[name] for name in alive}, own, wraps)
    return total - sum(hub.stage.sites[name].update(MODEL) for name in colluders), ""


async def unmasked(
    hub: LyingHub, request: ShareRequest, orders: Orders, results: Results, own: dict[str, bytes],
    wraps: dict[str, bytes],
) -> Array:  # fmt: skip
    """The sum of these answers without their own masks and those with the victims."""
    asked = Agreement.decode(next(iter(payloads(results).values()))).request
    add, subtract = [], [bound_seed(seed, asked) for seed in own.values()]
    for victim, wrap in wraps.items():
        for name, key in unwrap_keys(request, victim, wrap, orders.answers[victim].wrapped).items():
            if name in results:
                (subtract if name < victim else add).append(bound_seed(key, asked))
    total = await hub.total(results)
    Masks(add=add, subtract=subtract).apply(total, 0)
    return decode(total, hub.plan().default)


async def test_a_threshold_with_which_colluding_sites_could_unmask_a_smaller_sum_is_refused(
    attacked: Attacked,
) -> None:
    async with attacked(**FEARFUL) as hub:
        total, why = await sum_of_two(hub)
        assert total is None
        assert "a sum of 2 beside 3 that collude with it" in why


@pytest.mark.control("test_a_threshold_with_which_colluding_sites_could_unmask_a_smaller_sum_is_refused")
async def test_control_where_sites_count_nobody_as_colluding_a_sum_with_two_honest_ones_is_unmasked(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = thresholds.smallest_sum
    monkeypatch.setattr(
        thresholds, "smallest_sum", lambda members, threshold, _colluding=0: counted(members, threshold)
    )
    async with attacked(**FEARFUL) as hub:
        assert counted(10, THRESHOLD) == 6  # this was promised
        total, why = await sum_of_two(hub)
        assert total is not None, why
        two = sum(hub.stage.sites[name].update(MODEL) for name in hub.stage.names[:2])
        assert np.abs(total - two).max() <= 10 * half_step(hub.plan())
