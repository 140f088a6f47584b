"""A hub that has the sums of a preparation twice: with a model beside it that no site reads, as if that made another
work; or over the very same sites, cut to other limits the second time.

Without one site the difference is that one's rows, and the sum of its cells. Cut, it is what the largest site has more.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from adversary.ages import AGES, ROWS, TARGET
from adversary.lying_hub import MODEL, LyingHub, Results, model_ref, refusals
from adversary.works import without
from hanse_datapod.masking import plan as plans
from hanse_fabric.messages import RingPlan, TaskKind
from hanse_fabric.messages.masking import Ring
from hanse_fabric.tensors.file import decode_tensors
from hanse_learning import binding
from hanse_learning.preparation.plan import counted, rings
from hanse_learning.preparation.scales import SUM_FRACTION
from hanse_privacy.joint import Computation
from hanse_privacy.ring import files as ring_files
from hanse_privacy.ring import limbs
from hanse_privacy.ring.codec import encode
from hanse_schemas.prepare import rules_of
from hanse_workflows.joint_sums import plan_of

RULES = [{"name": "age", "kind": "number"}]


def honest() -> RingPlan:
    return plan_of(Computation("prepare", "sums", rings=rings(counted(rules_of(RULES)).arrays, len(ROWS))), len(ROWS))


async def summed(
    hub: LyingHub, names: list[str], number: int, plan: RingPlan, **fields: Any
) -> tuple[dict[str, Any] | None, str]:
    """The sums of these sites' arrays by name; or why there are none."""
    session, run = f"s{number}", f"run{number:09}"
    config = {"prepare": RULES}
    results = await hub.ask(
        *(
            hub.task(site, session, kind=TaskKind.PREPARE, plan=plan, run=run, config=config, round=0, **fields)
            for site in names
        )
    )
    return await sums_of(hub, results, session, run)


async def sums_of(hub: LyingHub, results: Results, session: str, run: str) -> tuple[dict[str, Any] | None, str]:
    """The sums of these answers, unmasked; or why there are none."""
    if refusals(results):
        return None, "; ".join(refusals(results).values())
    answer = await hub.ask_masks(results, session, run=run)
    if answer.sum is None:
        return None, answer.reason
    files = [decode_tensors(await hub.file(result, result.update)) for result in results.values()]
    flat = [np.concatenate([arrays[entry.name].ravel() for entry in layout]) for layout, arrays in files]
    total = (np.sum(flat, axis=0, dtype=np.uint64) - await hub.masks(answer)).view(np.int64)
    found, at = {}, 0
    for entry in files[0][0]:
        size = int(np.prod(entry.shape))
        found[entry.name] = total[at : at + size].reshape(entry.shape)
        at += size
    return found, ""


async def one_sites_ages(hub: LyingHub) -> tuple[tuple[int, float] | None, str]:
    """(rows, sum of ages) of the target, as the hub reads them; or why it does not."""
    whole, why = await summed(hub, hub.stage.names, 1, honest())
    assert whole is not None, why
    rest, why = await summed(hub, without(hub, TARGET), 2, honest(), model=MODEL, extras={"control": model_ref(MODEL)})
    if rest is None:
        return None, why
    [age] = limbs.join((whole["sums"] - rest["sums"]).tolist())
    return (int((whole["rows"] - rest["rows"])[0]), float(Fraction(age, 1 << SUM_FRACTION))), ""


async def test_a_preparation_is_no_other_work_by_objects_that_no_site_reads(wards: Any) -> None:
    async with wards() as hub:
        read, why = await one_sites_ages(hub)
        assert read is None
        assert "1 fewer than the last set's" in why


@pytest.mark.control("test_a_preparation_is_no_other_work_by_objects_that_no_site_reads")
async def test_control_where_what_nobody_reads_makes_another_work_one_sites_sums_are_read(
    wards: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binding, "_objects", lambda task: {"model": task.model, "extras": dict(task.extras or {})})
    async with wards() as hub:
        assert await one_sites_ages(hub) == ((ROWS[3], sum(AGES[3])), "")


LIMIT = 15
"""Above all sites' rows but the target's."""


async def largest_sites_rows(hub: LyingHub) -> tuple[int | None, str]:
    """How many rows the largest site has, by two sums of all sites with the same limits, of other arrays each."""
    small, plan = Ring(bits=64, fraction=0, bound=LIMIT), honest().model_copy(update={"refuse_out_of_range": False})
    wide = plan.model_copy(update={"entries": {**plan.entries, "of nothing": small}})
    whole, why = await summed(hub, hub.stage.names, 1, wide)
    if whole is None:
        return None, why
    cut = plan.model_copy(update={"entries": {**plan.entries, "rows": small}})
    rest, why = await summed(hub, hub.stage.names, 2, cut)
    return (None, why) if rest is None else (LIMIT + int((whole["rows"] - rest["rows"])[0]), "")


async def test_a_preparations_sums_are_not_cut_to_limits_of_the_hubs_choice(wards: Any) -> None:
    async with wards() as hub:
        read, why = await largest_sites_rows(hub)
        assert read is None
        assert "a preparation's sums are neither weighted, cut nor rounded" in why


@pytest.mark.control("test_a_preparations_sums_are_not_cut_to_limits_of_the_hubs_choice")
async def test_control_where_a_site_takes_any_rings_two_sums_tell_the_largest_sites_rows(
    wards: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def clipping(*args: Any, **how: Any) -> Any:
        return encode(*args, **how | {"wrap": False})

    monkeypatch.setattr(plans, "_check_uncut", lambda *_: None)
    monkeypatch.setattr(ring_files, "encode", clipping)
    async with wards() as hub:
        assert await largest_sites_rows(hub) == (ROWS[3], "")
