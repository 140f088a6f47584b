"""A hub that has the signs of updates summed beside them, as gradient-masked averaging does: where no job asks for it,
beside sums whose noise hides the updates, or a second time without one site.

Where all sites agree, a sum of signs tells each one's. So cautious sites answer none unless their policies say so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub, refusals
from adversary.test_hub_works import claims_nothing
from adversary.works import TARGET, without
from hanse_compensator.memory import Memory
from hanse_datapod.masking import plan as at_the_site
from hanse_datapod.policy.masking import MaskingPolicy
from hanse_fabric.messages import PrivacyTerms
from hanse_fabric.messages.privacy import Privacy
from hanse_fabric.subjects import MASKS
from hanse_fabric.tensors.file import decode_tensors
from hanse_privacy.ring import files
from hanse_privacy.ring.files import SIGNS

SIGNS_TOLD: dict[str, Any] = {"masking": {"signs": True}}
NOISE = PrivacyTerms(
    privacy=Privacy(placement="distributed", mechanism="discrete_gaussian", noise_multiplier=8.0),
    rounds=1, round=1, active=4,
)  # fmt: skip


async def signs_of(
    hub: LyingHub, names: Iterable[str], session: str, **task: Any
) -> tuple[NDArray[np.int8] | None, str]:
    """The sum of the signs of some sites' updates; or why there is none."""
    run = f"runof{session:0>7}"
    plan = hub.plan(bits=64).model_copy(update={"signs": 8})
    results = await hub.ask(
        *(hub.task(name, model=MODEL, session=session, plan=plan, run=run, **task) for name in names)
    )
    if refusals(results):
        return None, "; ".join(refusals(results).values())
    answer = await hub.ask_masks(results, session, run=run)
    if answer.sum is None:
        return None, answer.reason
    assert answer.sum.update is not None
    tokens = {"project": answer.project, "run": run, "session": session}
    record = await hub.aggregator.last(
        MASKS.stream or "", MASKS.of(**tokens, digest=answer.sum.update.digest)
    )  # fmt: skip
    assert record is not None
    total = -decode_tensors(record.data)[1]["u8"]
    for result in results.values():
        total = total + decode_tensors(await hub.file(result, result.update))[1][SIGNS]
    return total.view(np.int8), ""


def true_signs(hub: LyingHub, names: Iterable[str]) -> NDArray[np.int8]:
    return np.sum([np.sign(hub.stage.sites[name].update(MODEL)) for name in names], axis=0).astype(np.int8)


async def test_an_honest_sum_of_signs_is_answered_by_sites_whose_policies_let_it(attacked: Attacked) -> None:
    async with attacked(**SIGNS_TOLD) as hub:
        total, why = await signs_of(hub, hub.stage.names, "s1")
        assert total is not None, why
        assert np.array_equal(total, true_signs(hub, hub.stage.names))


async def test_where_masks_are_required_no_signs_are_summed_unless_the_policy_lets_them(attacked: Attacked) -> None:
    async with attacked() as hub:
        total, why = await signs_of(hub, hub.stage.names, "s1")
        assert total is None
        assert "masking.signs" in why


@pytest.mark.control("test_where_masks_are_required_no_signs_are_summed_unless_the_policy_lets_them")
async def test_control_where_all_agree_a_sum_of_signs_tells_each_ones(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MaskingPolicy, "sums_signs", True)
    async with attacked() as hub:
        total, why = await signs_of(hub, hub.stage.names, "s1")
        assert total is not None, why
        agreed = np.abs(total) == len(hub.stage.names)
        assert agreed.any()
        assert np.array_equal(np.sign(total)[agreed], true_signs(hub, [TARGET])[agreed])


async def test_no_signs_are_summed_beside_updates_that_shares_of_noise_hide(attacked: Attacked) -> None:
    async with attacked(**SIGNS_TOLD) as hub:
        total, why = await signs_of(hub, hub.stage.names, "s1", privacy=NOISE)
        assert total is None
        assert "signs of updates, to which no noise is added" in why


@pytest.mark.control("test_no_signs_are_summed_beside_updates_that_shares_of_noise_hide")
async def test_control_where_nobody_looks_signs_tell_what_the_noise_hides(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(at_the_site, "check_signs", lambda *_: None)
    monkeypatch.setattr(files, "check_no_signs", lambda *_: None)
    async with attacked(**SIGNS_TOLD) as hub:
        total, why = await signs_of(hub, hub.stage.names, "s1", privacy=NOISE)
        assert total is not None, why
        assert np.array_equal(total, true_signs(hub, hub.stage.names))


async def told_twice(hub: LyingHub) -> tuple[NDArray[np.int8] | None, str]:
    """The signs of all less those of all but the target."""
    found = []
    for number, names in enumerate((hub.stage.names, without(hub, TARGET))):
        total, why = await signs_of(hub, names, f"s{number}")
        if total is None:
            return None, why
        found.append(total)
    return found[0] - found[1], ""


async def test_the_signs_of_a_work_are_not_summed_again_without_one_site(attacked: Attacked) -> None:
    async with attacked(sites=5, **SIGNS_TOLD) as hub:
        read, why = await told_twice(hub)
        assert read is None
        assert "1 fewer than the last set's" in why


@pytest.mark.control("test_the_signs_of_a_work_are_not_summed_again_without_one_site")
async def test_control_without_memory_of_works_two_sums_of_signs_tell_one_sites(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Memory, "claim_set", claims_nothing)
    async with attacked(sites=5, **SIGNS_TOLD) as hub:
        read, why = await told_twice(hub)
        assert read is not None, why
        assert np.array_equal(read, true_signs(hub, [TARGET]))
