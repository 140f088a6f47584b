"""A hub that has sums in the middle of a round begun more than once, where masks cancel: nobody unmasks these."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import LyingHub
from adversary.stage import Array
from adversary.sums_within import FEDTAN, Normalised, are_statistics, sum_within, within_without_one
from adversary.works import MOVED, TARGET, without
from hanse_datapod.answers import withheld
from hanse_datapod.home.tags import Tags
from hanse_datapod.home.works import Works
from hanse_datapod.masking.remembered import Remembered
from hanse_fabric.messages import HiddenFailure
from hanse_learning import binding
from hanse_privacy.works.pairwise import Past


async def test_sums_within_a_round_are_begun_again_with_the_same_sites_whatever_round_it_is_called(
    attacked: Attacked,
) -> None:
    async with attacked(worker=Normalised) as hub:
        read, why = await within_without_one(hub, 2)
        assert read is None
        assert "was unmasked already" in why


@pytest.mark.control("test_sums_within_a_round_are_begun_again_with_the_same_sites_whatever_round_it_is_called")
async def test_control_sites_that_forget_what_they_began_tell_one_sites_statistics(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Past, "_check_revealed", lambda *_: None)
    async with attacked(worker=Normalised) as hub:
        read, why = await within_without_one(hub, 2)
        assert are_statistics(hub, read), why


async def test_sums_within_a_round_are_begun_with_those_alone_with_whom_they_were_before_whoever_shared(
    attacked: Attacked,
) -> None:
    async with attacked(worker=Normalised) as hub:
        read, why = await within_without_one(hub, opened=hub.stage.names)
        assert read is None
        assert "was unmasked already" in why


@pytest.mark.control("test_sums_within_a_round_are_begun_with_those_alone_with_whom_they_were_before_whoever_shared")
async def test_control_sites_that_ask_their_memory_before_they_share_alone_tell_one_sites_statistics(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Works, "begin", lambda *_, **__: None)
    async with attacked(worker=Normalised) as hub:
        read, why = await within_without_one(hub, opened=hub.stage.names)
        assert are_statistics(hub, read), why


NEXT_TO_NOTHING = {
    "a rule that matches nothing": FEDTAN
    | {"model": FEDTAN["model"] | {"state": [{"match": "nothing", "keep": "frozen"}]}},
    "another rate of learning": FEDTAN | {"train": FEDTAN["train"] | {"optimizer": {"name": "sgd", "lr": 0.5}}},
}
"""Settings by which the first sum within a step is the same."""


@pytest.mark.parametrize("config", NEXT_TO_NOTHING)
async def test_sums_within_a_round_are_begun_again_with_the_same_sites_whatever_settings_are_said(
    attacked: Attacked, config: str
) -> None:
    async with attacked(worker=Normalised) as hub:
        read, why = await within_without_one(hub, config=NEXT_TO_NOTHING[config])
        assert read is None
        assert "was unmasked already" in why


@pytest.mark.parametrize("config", NEXT_TO_NOTHING)
@pytest.mark.control("test_sums_within_a_round_are_begun_again_with_the_same_sites_whatever_settings_are_said")
async def test_control_where_settings_make_another_work_they_tell_one_sites_statistics(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch, config: str
) -> None:
    monkeypatch.setattr(binding, "patience_of", lambda _: None)
    async with attacked(worker=Normalised) as hub:
        read, why = await within_without_one(hub, config=NEXT_TO_NOTHING[config])
        assert are_statistics(hub, read), why


members = pytest.mark.parametrize(
    "rules", [{}, {"masking": {"members": "fixed"}}], ids=["members are free", "members are fixed"]
)


@members
async def test_sums_within_a_round_of_another_model_are_begun_with_the_same_sites(
    attacked: Attacked, rules: dict[str, Any]
) -> None:
    """One model has many files, and files that differ in what no first sum reads: nothing tells them from another."""
    async with attacked(worker=Normalised, **rules) as hub:
        read, why = await within_without_one(hub, 2, MOVED)
        assert read is None
        assert "was unmasked already" in why


@members
@pytest.mark.control("test_sums_within_a_round_of_another_model_are_begun_with_the_same_sites")
async def test_control_where_each_model_has_sums_of_its_own_those_of_a_moved_one_tell_one_sites_statistics(
    attacked: Attacked, rules: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Remembered, "_fixed", lambda *_: None)
    async with attacked(worker=Normalised, **rules) as hub:
        read, why = await within_without_one(hub, 2, MOVED)
        assert are_statistics(hub, read), why


@pytest.mark.no_attack("administrators have a way to other members")
async def test_sums_within_a_round_of_another_model_have_other_sites_once_administrators_renew_them(
    attacked: Attacked,
) -> None:
    async with attacked(worker=Normalised) as hub:
        first, why = await sum_within(hub, "s0", hub.stage.names, 1)
        assert first is not None, why
        for site in hub.stage.sites.values():
            Tags(site.home).renew()
        second, why = await sum_within(hub, "s1", without(hub, TARGET), 1, MOVED)
        assert second is not None, why


SMALL = FEDTAN | {"train": FEDTAN["train"] | {"batch_size": 4}}


async def test_that_a_batch_is_too_small_for_a_masked_sum_is_told_in_fixed_words(attacked: Attacked) -> None:
    async with attacked(worker=Normalised, outputs={"minimum_examples": 30}) as hub:
        read, why = await sum_within(hub, "s0", hub.stage.names, 1, config=SMALL)
        assert read is None
        assert why == "; ".join([HiddenFailure.UNFIT.text] * len(hub.stage.names))


@pytest.mark.control("test_that_a_batch_is_too_small_for_a_masked_sum_is_told_in_fixed_words")
async def test_control_where_reasons_leave_a_batch_tells_a_sites_rule(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(withheld, "withheld", lambda error: error)
    async with attacked(worker=Normalised, outputs={"minimum_examples": 30}) as hub:
        _, why = await sum_within(hub, "s0", hub.stage.names, 1, config=SMALL)
        assert "outputs.minimum_examples" in why
        assert "30" in why


async def next_round_without_one_person(hub: LyingHub) -> tuple[Array | None, str]:
    """The same sites and model in the next round, and a person fewer at one that has looked at its data before."""
    first, why = await sum_within(hub, "s0", hub.stage.names, 1)
    assert first is not None, why
    worker = hub.stage.sites[TARGET].worker
    worker.x, worker.y = worker.x[:-1], worker.y[:-1]
    second, why = await sum_within(hub, "s1", hub.stage.names, 2)
    return (None, why) if second is None else (first - second, "")


async def test_sums_within_a_round_are_not_made_again_of_data_with_one_person_fewer(attacked: Attacked) -> None:
    async with attacked(worker=Normalised) as hub:
        read, why = await next_round_without_one_person(hub)
        assert read is None
        assert HiddenFailure.UNFIT.text in why


@pytest.mark.control("test_sums_within_a_round_are_not_made_again_of_data_with_one_person_fewer")
async def test_control_where_data_in_use_are_not_asked_for_sums_tell_one_persons(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Works, "found", lambda *_, **__: None)
    async with attacked(worker=Normalised) as hub:
        before = hub.stage.sites[TARGET].worker.x
        read, why = await next_round_without_one_person(hub)
        assert read is not None, why
        assert np.abs(read - (before.mean(axis=0) - before[:-1].mean(axis=0))).max() < 1e-8
