"""A hub that has one work summed more than once where masks cancel: nobody remembers for all, each site does."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub, Results, half_step, payloads, refusals
from adversary.stage import Array, Regression
from adversary.works import MOVED, TARGET, is_of, summed, without
from hanse_datapod.answers import withheld
from hanse_datapod.home.journal import FILE as JOURNAL
from hanse_datapod.home.tags import Tags
from hanse_datapod.home.works import Works
from hanse_datapod.masking.remembered import Remembered, Tag
from hanse_datapod.worker.port import DATA_KEY, WorkOutcome, WorkRequest
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Contribution, HiddenFailure, MaskingMode, TaskKind
from hanse_fabric.subjects import EXCHANGE
from hanse_learning import binding
from hanse_learning.binding import work_digest
from hanse_privacy.pairwise.coordination import order_masks, shared_ahead
from hanse_privacy.ring.codec import decode
from hanse_privacy.ring.sums import decode_sum, sum_ring
from hanse_privacy.works.pairwise import Past, Session

RUN = "runof00000s0"


async def opened(
    hub: LyingHub, session: str, names: list[str], run: str, *, threshold: int | None = None, model: Array = MODEL
) -> tuple[Any, Any, dict[str, str]]:
    adverts, work = await hub.adverts(names, run=run), work_digest(hub.task(TARGET, model=model))
    request = hub.share_request(adverts, session, run=run, threshold=threshold, work=work)
    tasks = [hub.protocol(name, TaskKind.SHARE, request, request.encode()) for name in names]
    answers = await hub.ask(*tasks)
    if refusals(answers):
        return request, None, refusals(answers)
    return request, order_masks(request, payloads(answers)), {}


async def answered(
    hub: LyingHub, session: str, orders: Any, names: Iterable[str], run: str, *, model: Array = MODEL, **task: Any
) -> Results:
    plan = hub.plan(mode="pairwise", bits=64)
    return await hub.ask(
        *(
            hub.task(name, model=model, mode=MaskingMode.PAIRWISE, session=session, plan=plan, run=run,
                     payload=base64.b64encode(orders.payloads[name]), **task)
            for name in names
        )
    )  # fmt: skip


async def pairwise_sum(
    hub: LyingHub, session: str, names: list[str], *, model: Array = MODEL, **how: Any
) -> tuple[Array | None, str]:
    """The sum of some, in a session of a run of its own; or why there is none."""
    run = f"runof{session:0>7}"
    request, orders, refused = await opened(hub, session, names, run, model=model, **how)
    if orders is None:
        return None, "; ".join(refused.values())
    results = await answered(hub, session, orders, names, run, model=model)
    if refusals(results):
        return None, "; ".join(refusals(results).values())
    return await hub.unmasked(request, orders, results, hub.plan(mode="pairwise", bits=64)), "not unmasked"


async def pairwise_without_one(hub: LyingHub) -> tuple[Array | None, str]:
    first, why = await pairwise_sum(hub, "s0", hub.stage.names)
    assert first is not None, why
    second, why = await pairwise_sum(hub, "s1", without(hub, TARGET))
    return (None, why) if second is None else (first - second, "")


async def test_sites_whose_masks_cancel_sum_no_work_again_without_one_of_them(attacked: Attacked) -> None:
    async with attacked(sites=5) as hub:
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
    async with attacked(sites=5) as hub:
        read, why = await moved_in_another_mode(hub)
        assert read is None
        assert HiddenFailure.UNFIT.text in why


@pytest.mark.control("test_a_moved_model_is_not_summed_in_another_mode_without_one_site")
async def test_control_without_tags_a_moved_model_is_summed_in_another_mode(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Remembered, "tag", lambda *_: Tag())
    async with attacked(sites=5) as hub:
        read, why = await moved_in_another_mode(hub)
        assert is_of(hub, read, TARGET), why


@pytest.mark.control("test_sites_whose_masks_cancel_sum_no_work_again_without_one_of_them")
async def test_control_sites_that_forget_their_sums_tell_one_update(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Past, "_check_revealed", lambda *_: None)
    async with attacked(sites=5) as hub:
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
    async with attacked(sites=5) as hub:
        read, why = await by_what_was_shared_ahead(hub)
        assert read is None
        assert "was unmasked already" in why


@pytest.mark.control("test_what_was_shared_ahead_serves_no_second_sum_of_a_work_without_one_site")
async def test_control_sites_that_forget_their_sums_tell_one_update_by_what_was_shared_ahead(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Past, "_check_revealed", lambda *_: None)
    async with attacked(sites=5) as hub:
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
    monkeypatch.setattr(Session, "sure", property(lambda among: len(among.members)))
    async with attacked(sites=8) as hub:
        read, of_two, why = await answered_by_fewer_than_shared(hub)
        assert read is not None, why
        assert np.abs(read - of_two).max() < 1e-6


async def masked_twice(hub: LyingHub) -> tuple[Array | None, Array, str]:
    """One task, answered twice: with the journal lost between, and the data changed. What the two answers differ by,
    and what the updates do."""
    plan = hub.plan(mode="pairwise", bits=64)
    names, site = hub.stage.names, hub.stage.sites[TARGET]
    _, orders, _ = await opened(hub, "s0", names, RUN)
    first = await answered(hub, "s0", orders, [TARGET], RUN)
    before, masked = site.update(MODEL), await hub.update(first[TARGET])
    await site.stop()
    (site.home / JOURNAL).unlink()
    site.worker.y = site.worker.y + 1
    await site.start()
    again = await answered(hub, "s0", orders, [TARGET], RUN)
    apart = site.update(MODEL) - before
    if refusals(again):
        return None, apart, refusals(again)[TARGET]
    return decode(await hub.update(again[TARGET]) - masked, plan.default), apart, ""


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
        assert read is not None, why
        assert np.abs(read - apart).max() <= 2 * half_step(hub.plan(mode="pairwise", bits=64)) + 1e-9


class Normalised(Regression):
    """A worker that sums in the middle of its work, as FedTAN does, and gets no further."""

    async def work(self, request: WorkRequest, on_progress: Callable[[float, str], None]) -> WorkOutcome:
        if request.exchange is None:
            return await super().work(request, on_progress)
        await request.exchange(DATA_KEY, self.state().told())
        await request.exchange("l0-mean", self.x.mean(axis=0).tobytes())
        raise HanseError(ErrorCode.TRAINING_FAILED, "the sum has come, and nothing else does")


FEDTAN: dict[str, Any] = {
    "model": {"name": "mlp", "hidden": [4], "batch_norm": True},
    "train": {"steps": 1, "algorithm": {"name": "fedtan", "patience": 1.0}},
}


async def sum_within(
    hub: LyingHub, session: str, names: list[str], number: int, sent: Array = MODEL, opened: list[str] | None = None,
    config: Any = FEDTAN,
) -> tuple[Array | None, str]:  # fmt: skip
    """The sum of what sites contribute in the middle of a round, which needs no unmasking.

    Args:
        opened: for whom the session is, of whom `names` share secrets and take part; None: for these.
    """
    run, ring = f"runof{session:0>7}", sum_ring(hub.plan(mode="pairwise"))
    model = hub.task(TARGET, model=sent, config=config)
    adverts = await hub.adverts(opened or names, run=run)
    request = hub.share_request(adverts, session, run=run, work=work_digest(model))
    shared = await hub.ask(*(hub.protocol(name, TaskKind.SHARE, request, request.encode()) for name in names))
    if refusals(shared):
        return None, "; ".join(refusals(shared).values())
    orders = order_masks(request, payloads(shared))
    plan, said = hub.plan(mode="pairwise"), len(hub.heard)
    results = await hub.ask(
        *(
            hub.task(name, model=sent, mode=MaskingMode.PAIRWISE, session=session, plan=plan, run=run, config=config,
                     round=number, payload=base64.b64encode(orders.payloads[name]))
            for name in names
        )
    )  # fmt: skip
    where = {"project": hub.stage.project, "run": run, "step": "r1-train", "key": "l0-mean"}
    given = {EXCHANGE.of(participant=name, **where): name for name in names}
    found = {
        given[subject]: np.frombuffer(Contribution.decode(data).values, "<u8")
        for subject, data in hub.heard[said:]
        if subject in given
    }
    if len(found) < len(names):
        return None, "; ".join(refusals(results).values())
    total = np.sum(list(found.values()), axis=0, dtype=np.uint64)
    return np.frombuffer(decode_sum(total.tobytes(), ring)), ""


async def next_round_without_one(hub: LyingHub, sent: Array = MODEL) -> tuple[Array | None, str]:
    """The same numbers in the next round, and one site fewer."""
    first, why = await sum_within(hub, "s0", hub.stage.names, 1)
    assert first is not None, why
    second, why = await sum_within(hub, "s1", without(hub, TARGET), 2, sent)
    return (None, why) if second is None else (first - second, "")


async def test_sums_within_a_round_are_begun_again_with_the_same_sites_whatever_round_it_is_called(
    attacked: Attacked,
) -> None:
    async with attacked(worker=Normalised) as hub:
        read, why = await next_round_without_one(hub)
        assert read is None
        assert "was unmasked already" in why


@pytest.mark.control("test_sums_within_a_round_are_begun_again_with_the_same_sites_whatever_round_it_is_called")
async def test_control_sites_that_forget_what_they_began_tell_one_sites_statistics(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Past, "_check_revealed", lambda *_: None)
    async with attacked(worker=Normalised) as hub:
        read, why = await next_round_without_one(hub)
        assert read is not None, why
        assert np.abs(read - hub.stage.sites[TARGET].worker.x.mean(axis=0)).max() < 1e-8


async def session_without_one(hub: LyingHub) -> tuple[Array | None, str]:
    """The same numbers in another session, which is opened for all; one is not named among those who take part."""
    first, why = await sum_within(hub, "s0", hub.stage.names, 1)
    assert first is not None, why
    second, why = await sum_within(hub, "s1", without(hub, TARGET), 1, opened=hub.stage.names)
    return (None, why) if second is None else (first - second, "")


async def test_sums_within_a_round_are_begun_with_those_alone_with_whom_they_were_before_whoever_shared(
    attacked: Attacked,
) -> None:
    async with attacked(worker=Normalised) as hub:
        read, why = await session_without_one(hub)
        assert read is None
        assert "was unmasked already" in why


@pytest.mark.control("test_sums_within_a_round_are_begun_with_those_alone_with_whom_they_were_before_whoever_shared")
async def test_control_sites_that_ask_their_memory_before_they_share_alone_tell_one_sites_statistics(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Works, "begin", lambda *_, **__: None)
    async with attacked(worker=Normalised) as hub:
        read, why = await session_without_one(hub)
        assert read is not None, why
        assert np.abs(read - hub.stage.sites[TARGET].worker.x.mean(axis=0)).max() < 1e-8


NEXT_TO_NOTHING = {
    "a rule that matches nothing": FEDTAN
    | {"model": FEDTAN["model"] | {"state": [{"match": "nothing", "keep": "frozen"}]}},
    "another rate of learning": FEDTAN | {"train": FEDTAN["train"] | {"optimizer": {"name": "sgd", "lr": 0.5}}},
}
"""Settings by which the first sum within a step is the same."""


async def settings_without_one(hub: LyingHub, config: Any) -> tuple[Array | None, str]:
    """The same numbers by other settings, and one site fewer."""
    first, why = await sum_within(hub, "s0", hub.stage.names, 1)
    assert first is not None, why
    second, why = await sum_within(hub, "s1", without(hub, TARGET), 1, config=config)
    return (None, why) if second is None else (first - second, "")


@pytest.mark.parametrize("config", NEXT_TO_NOTHING)
async def test_sums_within_a_round_are_begun_again_with_the_same_sites_whatever_settings_are_said(
    attacked: Attacked, config: str
) -> None:
    async with attacked(worker=Normalised) as hub:
        read, why = await settings_without_one(hub, NEXT_TO_NOTHING[config])
        assert read is None
        assert "was unmasked already" in why


@pytest.mark.parametrize("config", NEXT_TO_NOTHING)
@pytest.mark.control("test_sums_within_a_round_are_begun_again_with_the_same_sites_whatever_settings_are_said")
async def test_control_where_settings_make_another_work_they_tell_one_sites_statistics(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch, config: str
) -> None:
    monkeypatch.setattr(binding, "patience_of", lambda _: None)
    async with attacked(worker=Normalised) as hub:
        read, why = await settings_without_one(hub, NEXT_TO_NOTHING[config])
        assert read is not None, why
        assert np.abs(read - hub.stage.sites[TARGET].worker.x.mean(axis=0)).max() < 1e-8


FIXED = {"masking": {"members": "fixed"}}


async def test_where_members_are_fixed_sums_within_a_round_of_another_model_are_begun_with_the_same_sites(
    attacked: Attacked,
) -> None:
    async with attacked(worker=Normalised, **FIXED) as hub:
        read, why = await next_round_without_one(hub, MOVED)
        assert read is None
        assert "was unmasked already" in why


@pytest.mark.control("test_where_members_are_fixed_sums_within_a_round_of_another_model_are_begun_with_the_same_sites")
async def test_control_where_members_are_not_fixed_sums_of_a_moved_model_tell_one_sites_statistics(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Remembered, "_fixed", lambda *_: None)
    async with attacked(worker=Normalised, **FIXED) as hub:
        read, why = await next_round_without_one(hub, MOVED)
        assert read is not None, why
        assert np.abs(read - hub.stage.sites[TARGET].worker.x.mean(axis=0)).max() < 1e-8


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


async def test_sums_within_a_round_of_another_model_are_begun_with_the_same_sites(attacked: Attacked) -> None:
    """One model has many files, and files that differ in what no first sum reads: nothing tells them from another."""
    async with attacked(worker=Normalised) as hub:
        read, why = await next_round_without_one(hub, MOVED)
        assert read is None
        assert "was unmasked already" in why


@pytest.mark.control("test_sums_within_a_round_of_another_model_are_begun_with_the_same_sites")
async def test_control_where_each_model_has_sums_of_its_own_those_of_a_moved_one_tell_one_sites_statistics(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Remembered, "_fixed", lambda *_: None)
    async with attacked(worker=Normalised) as hub:
        read, why = await next_round_without_one(hub, MOVED)
        assert read is not None, why
        assert np.abs(read - hub.stage.sites[TARGET].worker.x.mean(axis=0)).max() < 1e-8


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
