"""A hub that has one work summed more than once: in other sessions, runs and rounds, over sets that it chooses."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub
from adversary.stage import Array
from adversary.works import MOVED, TARGET, is_of, summed, without
from hanse_compensator.memory import Memory
from hanse_compensator.works import Claim, WorkFile
from hanse_datapod.home import works
from hanse_datapod.home.tags import Tags
from hanse_datapod.masking.remembered import Remembered, Tag
from hanse_datapod.policy.masking import MaskingPolicy
from hanse_fabric.messages import Bound, HiddenFailure
from hanse_fabric.messages.masking import WorkRecord
from hanse_fabric.subjects import MASK_RECORDS, WORK_RECORDS
from hanse_learning.binding import work_digest
from hanse_privacy.works.chain import SetChain, SummedSets, keys_of
from hanse_privacy.works.codec import encode_whole
from overhearing import with_all_rights


async def claims_nothing(self: Memory, claim: object) -> None:
    """In place of the compensator's memory of works."""


async def combined(hub: LyingHub, *sets: Iterable[str], **second: Any) -> tuple[Array | None, str]:
    """The sum over the first set less those over the others."""
    left: Array | None = None
    for number, names in enumerate(sets):
        total, why = await summed(hub, names, f"s{number}", **(second if number else {}))
        if total is None:
            return None, why
        left = total if left is None else left - total
    return left, ""


AGAIN: dict[str, dict[str, Any]] = {
    "another run": {}, "another round": {"round": 2}, "an owner's other job": {"bound": Bound(job="f" * 64, seed=7)}
}  # fmt: skip


async def by_each(hub: LyingHub) -> dict[str, tuple[Array | None, str]]:
    """The sum of all less that of all but the target, by each way to ask for the work again; or why there is none."""
    whole, why = await summed(hub, hub.stage.names, "s0")
    assert whole is not None, why
    found: dict[str, tuple[Array | None, str]] = {}
    for number, (way, second) in enumerate(AGAIN.items(), start=1):
        rest, why = await summed(hub, without(hub, TARGET), f"s{number}", **second)
        found[way] = None if rest is None else whole - rest, why
    return found


async def test_a_work_is_not_summed_again_without_one_site(attacked: Attacked) -> None:
    async with attacked(sites=4) as hub:
        for way, (read, why) in (await by_each(hub)).items():
            assert read is None, way
            assert "1 fewer than the last set's" in why, way


@pytest.mark.control("test_a_work_is_not_summed_again_without_one_site")
async def test_control_without_memory_of_works_two_sums_tell_one_update(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Memory, "claim_set", claims_nothing)
    async with attacked(sites=4) as hub:
        for way, (read, why) in (await by_each(hub)).items():
            assert is_of(hub, read, TARGET), f"{way}: {why}"


THREE_SETS = [["site-1", "site-2", "site-3"], ["site-4", "site-5", "site-6"]]


async def test_three_sets_that_differ_by_three_each_are_not_summed(attacked: Attacked) -> None:
    async with attacked(sites=7) as hub:
        read, why = await combined(hub, hub.stage.names, *THREE_SETS)
        assert read is None
        assert "not all of the last set's" in why


@pytest.mark.control("test_three_sets_that_differ_by_three_each_are_not_summed")
async def test_control_without_memory_of_works_three_sums_tell_one_update(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Memory, "claim_set", claims_nothing)
    async with attacked(sites=7) as hub:
        read, why = await combined(hub, hub.stage.names, *THREE_SETS)
        assert is_of(hub, read, TARGET), why


async def test_a_model_moved_by_one_unit_in_the_last_place_is_no_other_work(attacked: Attacked) -> None:
    async with attacked(sites=4) as hub:
        read, why = await combined(hub, hub.stage.names, without(hub, TARGET), model=MOVED)
        assert read is None
        assert "1 fewer than the last set's" in why


@pytest.mark.control("test_a_model_moved_by_one_unit_in_the_last_place_is_no_other_work")
async def test_control_without_tags_a_moved_model_tells_one_update(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Remembered, "tag", lambda *_: Tag())
    async with attacked(sites=4) as hub:
        read, why = await combined(hub, hub.stage.names, without(hub, TARGET), model=MOVED)
        assert is_of(hub, read, TARGET), why


FIXED = {"masking": {"members": "fixed"}}


async def other_members(hub: LyingHub) -> tuple[Array | None, str]:
    """Another work altogether, with one site fewer."""
    first, why = await summed(hub, hub.stage.names, "s0")
    assert first is not None, why
    return await summed(hub, without(hub, TARGET), "s1", model=1 - 2 * MODEL[::-1])


async def test_where_members_are_fixed_no_sum_at_all_has_one_fewer_until_administrators_renew_them(
    attacked: Attacked,
) -> None:
    async with attacked(sites=4, **FIXED) as hub:
        read, why = await other_members(hub)
        assert read is None
        assert "1 fewer than the last set's" in why
        for site in hub.stage.sites.values():
            Tags(site.home).renew()
        read, why = await summed(hub, without(hub, TARGET), "s2", model=2 - MODEL[::-1])
        assert read is not None, why


@pytest.mark.control("test_where_members_are_fixed_no_sum_at_all_has_one_fewer_until_administrators_renew_them")
async def test_control_where_members_are_not_fixed_another_work_is_summed_without_one(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MaskingPolicy, "fixed", lambda *_: False)
    async with attacked(sites=4, **FIXED) as hub:
        read, why = await other_members(hub)
        assert read is not None, why


async def forgotten_by_the_hub(hub: LyingHub) -> None:
    """The hub, whose the bus is, removes what the compensator has written there."""
    server = hub.stage.server
    owner = await with_all_rights(server.url, server.authority.folder)
    for row in (WORK_RECORDS, MASK_RECORDS):
        assert row.stream is not None
        await owner.jetstream().purge_stream(row.stream.name)
    await owner.close()


async def rolled_back(hub: LyingHub) -> tuple[Array | None, str]:
    first, why = await summed(hub, hub.stage.names, "s0")
    assert first is not None, why
    await forgotten_by_the_hub(hub)
    second, why = await summed(hub, without(hub, TARGET), "s1")
    return (None, why) if second is None else (first - second, "")


async def test_a_hub_that_removes_the_compensators_records_gets_no_other_set(attacked: Attacked) -> None:
    async with attacked(sites=4) as hub:
        read, why = await rolled_back(hub)
        assert read is None
        assert "1 fewer than the last set's" in why


@pytest.mark.control("test_a_hub_that_removes_the_compensators_records_gets_no_other_set")
async def test_control_a_compensator_without_a_file_of_its_own_believes_the_hub(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WorkFile, "claim", lambda _, claim, known: known.admit(claim.members, claim.gap))
    async with attacked(sites=4) as hub:
        read, why = await rolled_back(hub)
        assert is_of(hub, read, TARGET), why


async def told_by_the_hub(hub: LyingHub, *sets: Iterable[str]) -> None:
    """The hub, whose the bus is, writes there that the work of `MODEL` was summed over these sets, for members who do
    not mind any difference."""
    keys = {name: site.identity.signing_key.public_bytes for name, site in hub.stage.sites.items()}
    work = work_digest(hub.task(TARGET, model=MODEL)).hex()
    chain = SetChain(1, tuple(keys_of(keys[name] for name in names) for names in sets))
    members, told = map(base64.b64encode, encode_whole(SummedSets((chain,))))
    server = hub.stage.server
    owner = await with_all_rights(server.url, server.authority.folder)
    await owner.jetstream().publish(WORK_RECORDS.of(work=work), WorkRecord(work=work, keys=members, sets=told).encode())
    await owner.close()


async def after_a_forged_record(hub: LyingHub, model: Array) -> tuple[Array | None, str]:
    """The difference of the work's sum and another's, of one site fewer, of which the hub has said that it was summed
    before; or why there is none."""
    await told_by_the_hub(hub, hub.stage.names, without(hub, TARGET))
    try:
        return await combined(hub, hub.stage.names, without(hub, TARGET), model=model)
    finally:
        await forgotten_by_the_hub(hub)  # other tests ask for this work on the same bus


OTHER_MODEL = 1 - 2 * MODEL[::-1]


@pytest.mark.parametrize(
    ("rules", "model"), [({}, MOVED), (FIXED, OTHER_MODEL)], ids=["a moved model", "members are fixed"]
)
async def test_no_set_is_summed_because_a_hub_has_written_that_it_was(
    attacked: Attacked, rules: dict[str, Any], model: Array
) -> None:
    async with attacked(sites=4, **rules) as hub:
        read, why = await after_a_forged_record(hub, model)
        assert read is None
        assert "1 fewer than the last set's" in why


@pytest.mark.control("test_no_set_is_summed_because_a_hub_has_written_that_it_was")
async def test_control_a_compensator_that_keeps_what_the_bus_tells_sums_a_moved_model_without_one_site(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = WorkFile.claim

    def believing(self: WorkFile, asked: Claim, known: SummedSets) -> SummedSets:
        if known.chains and not self.known([asked.work]):
            with closing(self._open()) as database, database:
                row = database.execute("INSERT INTO works (used, sets) VALUES (0, ?)", (self._encode(database, known),))
                database.execute("INSERT INTO keys VALUES (?, ?)", (asked.work, row.lastrowid))
        return claim(self, asked, known)

    monkeypatch.setattr(WorkFile, "claim", believing)
    async with attacked(sites=4) as hub:
        read, why = await after_a_forged_record(hub, MOVED)
        assert is_of(hub, read, TARGET), why


@pytest.mark.no_attack("an honest hub")
async def test_a_hub_that_was_restored_gets_the_same_sum_to_the_bit(attacked: Attacked) -> None:
    async with attacked(sites=4) as hub:
        first, _ = await summed(hub, hub.stage.names, "s0")
        await forgotten_by_the_hub(hub)
        second, why = await summed(hub, hub.stage.names, "s1")
        assert first is not None
        assert np.array_equal(first, second), why


async def test_an_honest_hub_that_was_restored_has_fewer_summed_by_the_minimum_and_then_no_others(
    attacked: Attacked,
) -> None:
    async with attacked(sites=7) as hub:
        names = hub.stage.names
        whole, why = await summed(hub, names, "s0")
        assert whole is not None, why
        await forgotten_by_the_hub(hub)
        assert (await summed(hub, names[:4], "s1"))[0] is not None
        assert "not all of the last set's" in (await summed(hub, names[:5], "s2"))[1]


def one_person_fewer(hub: LyingHub) -> Array:
    """What the target's update loses by it."""
    worker = hub.stage.sites[TARGET].worker
    before = worker.update(MODEL)
    worker.x, worker.y = worker.x[1:], worker.y[1:]
    lost: Array = before - worker.update(MODEL)
    return lost


@pytest.mark.parametrize("model", [MODEL, MOVED], ids=["the same model", "one that is moved"])
async def test_a_work_is_not_done_again_on_data_with_one_person_fewer(attacked: Attacked, model: Array) -> None:
    async with attacked() as hub:
        first, _ = await summed(hub, hub.stage.names, "s0")
        one_person_fewer(hub)
        second, why = await summed(hub, hub.stage.names, "s1", model=model)
        assert first is not None
        assert second is None
        assert why == HiddenFailure.UNFIT.text  # the site alone knows what has changed


@pytest.mark.control("test_a_work_is_not_done_again_on_data_with_one_person_fewer")
async def test_control_without_the_sketch_two_sums_tell_of_that_person(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(works, "check_changed", lambda *_: None)
    async with attacked() as hub:
        first, _ = await summed(hub, hub.stage.names, "s0")
        lost = one_person_fewer(hub)
        second, why = await summed(hub, hub.stage.names, "s1")
        assert first is not None, why
        assert second is not None, why
        assert np.abs(first - second - lost).max() < 1e-7
