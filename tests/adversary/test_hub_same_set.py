"""A hub that says that an answer was spoilt, and has the same sites asked again: it hears the same sum and no other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import LyingHub, payloads, refusals
from adversary.pairwise_works import answered, opened, pairwise_sum
from adversary.stage import Array
from adversary.test_hub_works import claims_nothing, one_person_fewer
from adversary.works import TARGET, is_of, summed, without
from hanse_compensator.memory import Memory
from hanse_datapod.home import works
from hanse_fabric.messages import HiddenFailure, TaskKind
from hanse_privacy.pairwise.coordination import ask_unmask
from hanse_privacy.pairwise.recovering import recover
from hanse_privacy.pairwise.streams import residual_masks
from hanse_privacy.ring.codec import decode
from hanse_privacy.works.pairwise import Past

SUMMED: dict[str, Any] = {"compensator": summed, "pairwise": pairwise_sum}
both = pytest.mark.parametrize("mode", SUMMED)


async def again_then_without_one(hub: LyingHub, mode: str) -> tuple[Array | None, str]:
    """The sum of all, the same once more, and one that lacks the target."""
    first, why = await SUMMED[mode](hub, names=hub.stage.names, session="s0")
    second, again = await SUMMED[mode](hub, names=hub.stage.names, session="s1")
    assert first is not None, why
    assert second is not None, again
    assert np.array_equal(first, second)
    third, why = await SUMMED[mode](hub, names=without(hub, TARGET), session="s2")
    return (None, why) if third is None else (second - third, "")


@both
async def test_the_same_sites_again_make_the_same_sum_and_then_none_without_one_of_them(
    attacked: Attacked, mode: str
) -> None:
    async with attacked(sites=4) as hub:
        read, why = await again_then_without_one(hub, mode)
        assert read is None
        assert "1 fewer than the last set's" in why or "was unmasked already" in why


@both
@pytest.mark.control("test_the_same_sites_again_make_the_same_sum_and_then_none_without_one_of_them")
async def test_control_where_nobody_remembers_the_sums_the_one_that_is_left_out_is_told(
    attacked: Attacked, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Memory, "claim_set", claims_nothing)
    monkeypatch.setattr(Past, "_check_revealed", lambda *_: None)
    async with attacked(sites=4) as hub:
        read, why = await again_then_without_one(hub, mode)
        assert is_of(hub, read, TARGET), why


async def fewer_in_the_sum(hub: LyingHub) -> tuple[Array | None, str]:
    """The same sites mask again, pairwise, and the target is said to have dropped out of the sum."""
    plan, run, names = hub.plan(mode="pairwise", bits=64), "runof00000s1", hub.stage.names
    first, why = await pairwise_sum(hub, "s0", names)
    assert first is not None, why
    request, orders, _ = await opened(hub, "s1", names, run)
    results = await answered(hub, "s1", orders, names, run)
    assert not refusals(results)
    left = {name: result for name, result in results.items() if name != TARGET}
    asked = ask_unmask(request, orders.members, payloads(left))
    told = await hub.ask(*(hub.protocol(name, TaskKind.UNMASK, request, asked.payload) for name in asked.survivors))
    if refusals(told):
        return None, "; ".join(refusals(told).values())
    recovered = recover(request, orders.answers, asked.survivors, payloads(told), asked.asked)
    assert recovered.recovery is not None
    total = await hub.total(left)
    residual_masks(recovered.recovery).apply(total, 0)
    return first - decode(total, plan.default), ""


async def test_of_the_same_sites_who_mask_again_none_is_left_out_of_the_sum(attacked: Attacked) -> None:
    async with attacked(sites=4) as hub:
        read, why = await fewer_in_the_sum(hub)
        assert read is None
        assert "all of them are in the next" in why


@pytest.mark.control("test_of_the_same_sites_who_mask_again_none_is_left_out_of_the_sum")
async def test_control_sites_that_do_not_ask_who_is_in_the_next_sum_tell_the_one_that_is_left_out(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Past, "check_survivors", lambda *_: None)
    async with attacked(sites=4) as hub:
        read, why = await fewer_in_the_sum(hub)
        assert is_of(hub, read, TARGET), why


async def one_fewer_person_in_between(hub: LyingHub) -> tuple[Array | None, Array, str]:
    first, why = await pairwise_sum(hub, "s0", hub.stage.names)
    assert first is not None, why
    lost = one_person_fewer(hub)
    second, why = await pairwise_sum(hub, "s1", hub.stage.names)
    return (None if second is None else first - second), lost, why


async def test_the_same_sites_again_make_no_other_sum_where_ones_data_lack_a_person(attacked: Attacked) -> None:
    async with attacked(sites=4) as hub:
        read, _, why = await one_fewer_person_in_between(hub)
        assert read is None
        assert why == HiddenFailure.UNFIT.text


@pytest.mark.control("test_the_same_sites_again_make_no_other_sum_where_ones_data_lack_a_person")
async def test_control_without_the_sketch_of_people_the_same_sites_tell_of_that_person(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(works, "check_changed", lambda *_: None)
    async with attacked(sites=4) as hub:
        read, lost, why = await one_fewer_person_in_between(hub)
        assert read is not None, why
        assert np.abs(read - lost).max() < 1e-7
