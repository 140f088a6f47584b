"""A hub that lies: coordinator and aggregator in one hand, with everything that their credentials permit."""

from __future__ import annotations

import base64
from collections.abc import Iterable

import numpy as np
import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import LyingHub, Results, half_step, payloads
from adversary.stage import FEATURES, Array
from hanse_compensator.memory import Memory
from hanse_fabric.messages import MaskingMode, RingPlan

MODEL = np.linspace(0.5, -0.5, FEATURES)


async def trained(hub: LyingHub, names: Iterable[str], session: str, plan: RingPlan) -> Results:
    return await hub.ask(*(hub.task(name, "r1-train", model=MODEL, session=session, plan=plan) for name in names))


def update_of(hub: LyingHub, name: str) -> Array:
    return hub.stage.sites[name].update(MODEL)


def sum_of(hub: LyingHub, names: Iterable[str]) -> Array:
    return np.sum([update_of(hub, name) for name in names], axis=0)


async def test_an_honest_round_is_summed_exactly_with_a_compensator(attacked: Attacked) -> None:
    async with attacked() as hub:
        names, plan = hub.stage.names, hub.plan()
        results = await trained(hub, names, "s1", plan)
        total = await hub.sum(results, "s1", plan)
        assert np.abs(total - sum_of(hub, names)).max() <= len(names) * half_step(plan)


async def test_an_honest_round_is_summed_exactly_pairwise(attacked: Attacked) -> None:
    async with attacked() as hub:
        names, plan = hub.stage.names, hub.plan(mode="pairwise")
        request = hub.share_request(await hub.adverts(names), "s1")
        orders = await hub.shared(request)
        results = await hub.ask(
            *(
                hub.task(name, model=MODEL, mode=MaskingMode.PAIRWISE, session="s1", plan=plan,
                         payload=base64.b64encode(orders.payloads[name]))
                for name in names
            )
        )  # fmt: skip
        assert set(payloads(results)) == set(names)
        total = await hub.unmasked(request, orders, results, plan)
        assert total is not None
        assert np.abs(total - sum_of(hub, names)).max() <= len(names) * half_step(plan)


async def second_sum_of_a_session(hub: LyingHub) -> tuple[Array | None, str]:
    """The target's update by two sums of one session: all, and all but the target."""
    names, plan = hub.stage.names, hub.plan()
    results = await trained(hub, names, "s1", plan)
    first = await hub.sum(results, "s1", plan)
    rest = {name: results[name] for name in names[1:]}
    answer = await hub.ask_masks(rest, "s1")
    if answer.sum is None:
        return None, answer.reason
    return first - await hub.sum(rest, "s1", plan), ""


async def test_a_session_is_summed_for_one_set_only(attacked: Attacked) -> None:
    async with attacked() as hub:
        read, reason = await second_sum_of_a_session(hub)
        assert read is None
        assert "another set" in reason, reason


async def test_control_without_memory_two_sums_of_a_session_tell_one_update(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forgets(self: Memory, request: object) -> None:
        """Claims nothing."""

    monkeypatch.setattr(Memory, "claim", forgets)
    async with attacked() as hub:
        read, _ = await second_sum_of_a_session(hub)
        assert read is not None
        assert np.abs(read - update_of(hub, hub.stage.names[0])).max() <= 8 * half_step(hub.plan())
