"""A hub that has one work summed more than once where masks cancel: nobody remembers for all, each site does."""

from __future__ import annotations

import numpy as np
import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub, payloads, refusals
from adversary.pairwise_works import RUN, answered, answered_again, is_under_one_mask, opened, pairwise_sum
from adversary.stage import Array
from adversary.works import MOVED, TARGET, is_of, summed, without
from hanse_datapod.home.journal import FILE as JOURNAL
from hanse_datapod.home.works import Works
from hanse_datapod.masking.remembered import Remembered, Tag
from hanse_fabric.messages import HiddenFailure, TaskKind
from hanse_learning.binding import work_digest
from hanse_privacy.pairwise.coordination import order_masks, shared_ahead
from hanse_privacy.works.pairwise import Past, UnmaskingSession


async def pairwise_without_one(hub: LyingHub) -> tuple[Array | None, str]:
    first, why = await pairwise_sum(hub, "s0", hub.stage.names)
    assert first is not None, why
    second, why = await pairwise_sum(hub, "s1", without(hub, TARGET))
    return (None, why) if second is None else (first - second, "")


async def test_sites_whose_masks_cancel_sum_no_work_again_without_one_of_them(attacked: Attacked) -> None:
    async with attacked(sites=4) as hub:
        read, why = await pairwise_without_one(hub)
        assert read is None
        assert "was unmasked already" in why


async def moved_in_another_mode(hub: LyingHub) -> tuple[Array | None, str]:
    """A sum with the compensator, and one of a model moved by one unit in the last place, without the target, by masks
    that cancel: nobody remembers both but the sites."""
    first, why = await summed(hub, hub.stage.names, "s0")
    assert first is not None, why
    second, why = await pairwise_sum(hub, "s1", without(hub, TARGET), model=MOVED)
    return (None, why) if second is None else (first - second, "")


async def test_a_moved_model_is_not_summed_in_another_mode_without_one_site(attacked: Attacked) -> None:
    async with attacked(sites=4) as hub:
        read, why = await moved_in_another_mode(hub)
        assert read is None
        assert HiddenFailure.UNFIT.text in why


@pytest.mark.control("test_a_moved_model_is_not_summed_in_another_mode_without_one_site")
async def test_control_without_tags_a_moved_model_is_summed_in_another_mode(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Remembered, "tag", lambda *_: Tag())
    async with attacked(sites=4) as hub:
        read, why = await moved_in_another_mode(hub)
        assert is_of(hub, read, TARGET), why


@pytest.mark.control("test_sites_whose_masks_cancel_sum_no_work_again_without_one_of_them")
async def test_control_sites_that_forget_their_sums_tell_one_update(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Past, "_check_revealed", lambda *_: None)
    async with attacked(sites=4) as hub:
        read, why = await pairwise_without_one(hub)
        assert is_of(hub, read, TARGET), why


async def by_what_was_shared_ahead(hub: LyingHub) -> tuple[Array | None, str]:
    """All are summed, and share beside their answers for a session whose work they do not know: which is the same, by
    all but one."""
    names, plan, rest = hub.stage.names, hub.plan(mode="pairwise", bits=64), without(hub, TARGET)
    work = work_digest(hub.task(TARGET, model=MODEL))
    request = hub.share_request(await hub.adverts(names, run=RUN), "s0", run=RUN, work=work)
    tasks = [hub.protocol(name, TaskKind.SHARE, request, request.encode()) for name in names]
    orders = order_masks(request, payloads(await hub.ask(*tasks)), ahead="s1")
    results = await answered(hub, "s0", orders, names, RUN)
    beside = shared_ahead(payloads(results))
    assert beside.keys() == set(names)
    first = await hub.unmasked(request, orders, results, plan)
    following = request.next("s1")
    orders = order_masks(following, {name: beside[name] for name in rest})
    results = await answered(hub, "s1", orders, rest, RUN, step="r1-again")
    if refusals(results):
        return None, "; ".join(refusals(results).values())
    second = await hub.unmasked(following, orders, results, plan)
    return (None, "not unmasked") if first is None or second is None else (first - second, "")


async def test_what_was_shared_ahead_serves_no_second_sum_of_a_work_without_one_site(attacked: Attacked) -> None:
    async with attacked(sites=4) as hub:
        read, why = await by_what_was_shared_ahead(hub)
        assert read is None
        assert "was unmasked already" in why


@pytest.mark.control("test_what_was_shared_ahead_serves_no_second_sum_of_a_work_without_one_site")
async def test_control_sites_that_forget_their_sums_tell_one_update_by_what_was_shared_ahead(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Past, "_check_revealed", lambda *_: None)
    async with attacked(sites=4) as hub:
        read, why = await by_what_was_shared_ahead(hub)
        assert is_of(hub, read, TARGET), why


async def members_apart(hub: LyingHub) -> tuple[Array | None, str]:
    """All answer; three of them are summed; then all, which the others unmask; then six of the others."""
    names, plan = hub.stage.names, hub.plan(mode="pairwise", bits=64)
    request, orders, _ = await opened(hub, "s0", names, RUN, threshold=7)
    results = await answered(hub, "s0", orders, names, RUN)
    three, why = await pairwise_sum(hub, "s1", names[1:4])
    if three is None:
        return None, why
    whole = await hub.unmasked(request, orders, results, plan, names=without(hub, *names[1:4]))
    six, why = await pairwise_sum(hub, "s2", names[4:])
    return (None, why) if whole is None or six is None else (whole - three - six, "")


async def test_members_whose_sum_was_not_unmasked_are_not_summed_apart(attacked: Attacked) -> None:
    async with attacked(sites=10) as hub:
        read, why = await members_apart(hub)
        assert read is None
        assert "at least 4 are wanted" in why


@pytest.mark.control("test_members_whose_sum_was_not_unmasked_are_not_summed_apart")
async def test_control_sites_that_forget_their_answers_tell_one_update_by_three_sums(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rule in ("check", "check_survivors"):
        monkeypatch.setattr(Past, rule, lambda *_: None)
    async with attacked(sites=10) as hub:
        read, why = await members_apart(hub)
        assert is_of(hub, read, TARGET), why


async def answered_by_fewer_than_shared(hub: LyingHub) -> tuple[Array | None, Array, str]:
    """All answer. Four share secrets for a moved model, three of whom answer and are summed; then the other five unmask
    the sum of the three and two more. What the two sums differ by, and what those two have, whom nobody may know."""
    names, plan, run = hub.stage.names, hub.plan(mode="pairwise", bits=64), "runof00000s1"
    three, two = names[:3], names[3:5]
    of_two: Array = np.sum([hub.stage.sites[name].update(MODEL) for name in two], axis=0)
    request, orders, _ = await opened(hub, "s0", names, RUN, threshold=5)
    results = await answered(hub, "s0", orders, names, RUN)
    other, its_orders, _ = await opened(hub, "s1", names[:4], run, threshold=3, model=MOVED)
    moved = await answered(hub, "s1", its_orders, three, run, model=MOVED)
    if refusals(moved):
        return None, of_two, "; ".join(refusals(moved).values())
    few = await hub.unmasked(other, its_orders, moved, plan)
    chosen = {name: results[name] for name in (*three, *two)}
    more = await hub.unmasked(request, orders, chosen, plan, names=names[3:])
    return (None, of_two, "not unmasked") if few is None or more is None else (more - few, of_two, "")


async def test_a_near_work_that_fewer_answer_than_share_for_is_not_summed_beside_the_first(attacked: Attacked) -> None:
    async with attacked(sites=8) as hub:
        read, _, why = await answered_by_fewer_than_shared(hub)
        assert read is None
        assert HiddenFailure.UNFIT.text in why


@pytest.mark.control("test_a_near_work_that_fewer_answer_than_share_for_is_not_summed_beside_the_first")
async def test_control_where_who_shares_counts_as_who_answers_two_sums_tell_fewer_than_the_minimum(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(UnmaskingSession, "sure", property(lambda among: len(among.members)))
    async with attacked(sites=8) as hub:
        read, of_two, why = await answered_by_fewer_than_shared(hub)
        assert read is not None, why
        assert np.abs(read - of_two).max() < 1e-6


async def masked_twice(hub: LyingHub) -> tuple[Array | None, Array, str]:
    """One task, answered twice: with the journal lost between, and the data changed."""
    _, orders, _ = await opened(hub, "s0", hub.stage.names, RUN)
    return await answered_again(hub, orders, lambda site: (site.home / JOURNAL).unlink())


async def test_an_answer_that_left_is_not_made_again_after_the_journal_is_lost(attacked: Attacked) -> None:
    async with attacked() as hub:
        read, _, why = await masked_twice(hub)
        assert read is None
        assert "does not have the bytes of the answer any more" in why


@pytest.mark.control("test_an_answer_that_left_is_not_made_again_after_the_journal_is_lost")
async def test_control_without_the_memory_of_answers_two_under_one_mask_tell_their_difference(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("check", "claim", "fix_answer", "check_people"):
        monkeypatch.setattr(Works, name, lambda *_, **__: None)
    async with attacked() as hub:
        read, apart, why = await masked_twice(hub)
        assert is_under_one_mask(hub, read, apart), why
