"""A hub that makes a site blind to answers that are near to each other, before it asks for two such: by a model of
which an update has no finite numbers (no such answer leaves; but what a site keeps of its updates must not be of it,
either), or by so many other questions that the site forgets the first: its direction, or with whom it was summed.
"""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub, refusals
from adversary.pairwise_works import pairwise_sum
from adversary.stage import Array
from adversary.sums_within import Normalised, are_statistics, sum_within
from adversary.works import MOVED, TARGET, is_of, summed, without
from hanse_datapod.home import tags, works
from hanse_datapod.home.database import one
from hanse_fabric.messages import HiddenFailure
from hanse_privacy.works import near

TOO_LARGE = np.full(len(MODEL), 3e38)
FAST = {"model": {"name": "linear"}, "train": {"steps": 1, "optimizer": {"name": "sgd", "lr": 100.0}}}


async def blinded(hub: LyingHub) -> tuple[Array | None, str]:
    """All sites are asked for what no sum carries; then the sum of all, and of a moved model without the target's."""
    results = await hub.ask(
        *(hub.task(name, "blind", model=TOO_LARGE, config=FAST, run="blinded00000") for name in hub.stage.names)
    )
    assert set(refusals(results).values()) == {HiddenFailure.FAILED.text}
    first, why = await summed(hub, hub.stage.names, "s0")
    assert first is not None, why
    second, why = await summed(hub, without(hub, TARGET), "s1", model=MOVED)
    return (None, why) if second is None else (first - second, "")


async def test_no_update_without_finite_numbers_makes_a_site_blind_to_near_answers(attacked: Attacked) -> None:
    async with attacked(sites=4) as hub:
        read, why = await blinded(hub)
        assert read is None
        assert "1 fewer than the last set's" in why


@pytest.mark.control("test_no_update_without_finite_numbers_makes_a_site_blind_to_near_answers")
async def test_control_where_what_is_not_finite_is_kept_and_compared_with_one_update_is_read(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nearest(own: near.Sketch, others: list[near.Sketch], sine: float) -> int | None:
        sines = [near.sine(own, other) for other in others]
        at = int(np.argmin(sines)) if sines else 0
        return at if sines and sines[at] < sine else None

    monkeypatch.setattr(tags, "require_finite", lambda _: None)
    monkeypatch.setattr(tags, "nearest", nearest)
    async with attacked(sites=4) as hub:
        read, why = await blinded(hub)
        assert is_of(hub, read, TARGET), why


async def flushed(hub: LyingHub) -> tuple[Array | None, str]:
    """The sum of all; then so many other models that no site remembers that; then a moved model without the target."""
    first, why = await summed(hub, hub.stage.names, "s0")
    assert first is not None, why
    for number in range(1, tags.KEPT + 1):
        other = np.random.default_rng(number).normal(size=len(MODEL))
        await hub.ask(*(hub.task(name, f"f{number}", model=other) for name in hub.stage.names))
    second, why = await summed(hub, without(hub, TARGET), "s1", model=MOVED)
    return (None, why) if second is None else (first - second, "")


async def test_no_site_is_asked_so_much_that_it_forgets_to_what_an_answer_is_near(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tags, "KEPT", 4)
    async with attacked(sites=4) as hub:
        read, why = await flushed(hub)
        assert read is None
        assert HiddenFailure.UNFIT.text in why


@pytest.mark.control("test_no_site_is_asked_so_much_that_it_forgets_to_what_an_answer_is_near")
async def test_control_where_a_site_forgets_within_the_hour_one_update_is_read(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tags, "KEPT", 4)
    monkeypatch.setattr(tags, "WEEK_S", 0.0)
    async with attacked(sites=4) as hub:
        read, why = await flushed(hub)
        assert is_of(hub, read, TARGET), why


ROOM = 2


@pytest.fixture
def _a_small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def used(database: sqlite3.Connection) -> int:
        answers: int = one(database, "SELECT count(*) FROM answers")[0]
        return works.LIMIT + 1 if answers >= ROOM else 0

    monkeypatch.setattr(works, "used_bytes", used)
    monkeypatch.setattr(works, "_FORGOTTEN_AT_ONCE", 1)


async def filled(hub: LyingHub) -> tuple[Array | None, str]:
    """The sum of all by masks that cancel; then so many others that no site remembers with whom it was; then a moved
    model without the target."""
    first, why = await pairwise_sum(hub, "s0", hub.stage.names)
    assert first is not None, why
    for number in range(1, ROOM + 1):
        other = np.random.default_rng(number).normal(size=len(MODEL))
        more, why = await pairwise_sum(hub, f"s{number}", hub.stage.names, model=other)
        assert more is not None, why
    second, why = await pairwise_sum(hub, "last", without(hub, TARGET), model=MOVED)
    return (None, why) if second is None else (first - second, "")


@pytest.mark.usefixtures("_a_small_memory")
async def test_no_site_is_asked_so_much_that_it_forgets_with_whom_a_near_answer_was_summed(attacked: Attacked) -> None:
    async with attacked(sites=4) as hub:
        read, why = await filled(hub)
        assert read is None
        assert HiddenFailure.UNFIT.text in why


@pytest.mark.usefixtures("_a_small_memory")
@pytest.mark.control("test_no_site_is_asked_so_much_that_it_forgets_with_whom_a_near_answer_was_summed")
async def test_control_where_tags_of_forgotten_answers_are_forgotten_one_update_is_read(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(works, "_check_known", lambda *_: None)
    async with attacked(sites=4) as hub:
        read, why = await filled(hub)
        assert is_of(hub, read, TARGET), why


async def filled_within(hub: LyingHub, names: list[str]) -> tuple[Array | None, str]:
    """The sum of what all contribute in the middle of a round; then so many others that no site would remember with
    whom it was; then such a sum of another model, of some."""
    first, why = await sum_within(hub, "s0", hub.stage.names, 1)
    assert first is not None, why
    for number in range(1, ROOM + 1):
        other = np.random.default_rng(number).normal(size=len(MODEL))
        more, why = await pairwise_sum(hub, f"s{number}", hub.stage.names, model=other)
        assert more is not None, why
    second, why = await sum_within(hub, "last", names, 2, MOVED)
    return (None, why) if second is None else (first - second, "")


@pytest.mark.usefixtures("_a_small_memory")
async def test_no_site_is_asked_so_much_that_it_forgets_with_whom_sums_within_a_round_were(attacked: Attacked) -> None:
    async with attacked(sites=4, worker=Normalised) as hub:
        read, why = await filled_within(hub, without(hub, TARGET))
        assert read is None
        assert "was unmasked already" in why


@pytest.mark.usefixtures("_a_small_memory")
@pytest.mark.control("test_no_site_is_asked_so_much_that_it_forgets_with_whom_sums_within_a_round_were")
async def test_control_where_the_oldest_answers_are_forgotten_whatever_their_tag_one_sites_statistics_are_read(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(works, "_OLDEST", works._OLDEST.replace(works._GOES, "true"))
    monkeypatch.setattr(works, "_FORGET", works._FORGET.replace(works._GOES, "true"))
    async with attacked(sites=4, worker=Normalised) as hub:
        read, why = await filled_within(hub, without(hub, TARGET))
        assert are_statistics(hub, read), why


@pytest.mark.usefixtures("_a_small_memory")
@pytest.mark.no_attack("a full memory ends no run that goes on with the same sites")
async def test_sums_within_a_round_go_on_with_the_same_sites_where_the_memory_is_full(attacked: Attacked) -> None:
    async with attacked(sites=4, worker=Normalised) as hub:
        nothing, why = await filled_within(hub, hub.stage.names)
        assert nothing is not None, why
        assert np.abs(nothing).max() < 1e-8
