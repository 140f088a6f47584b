"""A hub that lies: coordinator and aggregator in one hand, with everything that their credentials permit."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub, Results, half_step, payloads
from adversary.oracle import QUESTIONS, SECRET, TERMS, bracket, site_with_secret
from adversary.stage import Array
from hanse_compensator.memory import Memory
from hanse_datapod.answers import withheld
from hanse_datapod.worker.work import execute
from hanse_fabric.chain import read_chain
from hanse_fabric.messages import HiddenFailure, MaskingMode, Outcome, PrivacyTerms, Result, RingPlan
from hanse_fabric.messages.privacy import Privacy
from hanse_privacy.ledger import NAME
from hanse_privacy.noise.aggregate import noise_tail
from hanse_privacy.ring.plan import make_plan
from hanse_schemas.secure_aggregation import SecureAggregation


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


@pytest.mark.control("test_a_session_is_summed_for_one_set_only")
async def test_control_without_memory_two_sums_of_a_session_tell_one_update(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forgets(self: Memory, request: object) -> None:
        """Claims nothing."""

    monkeypatch.setattr(Memory, "claim", forgets)
    monkeypatch.setattr(Memory, "claim_set", forgets)
    async with attacked() as hub:
        read, _ = await second_sum_of_a_session(hub)
        assert read is not None
        assert np.abs(read - update_of(hub, hub.stage.names[0])).max() <= 8 * half_step(hub.plan())


OPEN = {"sites": 1, "masking": {"required": False}, "minimum_participants": 1}


async def test_whether_a_private_task_failed_tells_nothing_and_each_question_is_paid(
    attacked: Attacked, tmp_path: Path
) -> None:
    async with attacked(worker=lambda _: site_with_secret(tmp_path), **OPEN) as hub:
        low, high, results = await bracket(hub, mode=None, privacy=TERMS)
        assert not low < SECRET < high
        assert {(result.outcome, result.reason, *result.metrics) for result in results} == {(Outcome.DONE, "")}
        entries = read_chain(hub.stage.sites["site-0"].home, NAME)
        assert [entry["what"] for entry in entries] == ["charge", "settled"] * QUESTIONS


@pytest.mark.control("test_whether_a_private_task_failed_tells_nothing_and_each_question_is_paid")
async def test_control_where_private_training_may_fail_twelve_tasks_bracket_one_value(
    attacked: Attacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execute, "privately", lambda work, _private, train: train(work))
    async with attacked(worker=lambda _: site_with_secret(tmp_path), **OPEN) as hub:
        low, high, results = await bracket(hub, mode=None, privacy=TERMS)
        assert low < SECRET < high < 1.002 * low
        assert Outcome.FAILED in {result.outcome for result in results}


async def test_under_masks_a_failure_is_one_of_a_few_fixed_codes_without_words(
    attacked: Attacked, tmp_path: Path
) -> None:
    """That it failed is one bit, which masks alone do not hide: noise does."""
    async with attacked(sites=3, worker=lambda _: site_with_secret(tmp_path)) as hub:
        _, _, results = await bracket(hub)
        failed = [result for result in results if result.outcome is Outcome.FAILED]
        assert failed
        assert {(result.code, result.reason) for result in failed} == {
            (HiddenFailure.FAILED.value, HiddenFailure.FAILED.text)
        }


@pytest.mark.control("test_under_masks_a_failure_is_one_of_a_few_fixed_codes_without_words")
async def test_control_where_reasons_of_the_data_leave_the_hub_hears_them_in_words(
    attacked: Attacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(withheld, "withheld", lambda error: error)
    async with attacked(sites=3, worker=lambda _: site_with_secret(tmp_path)) as hub:
        _, _, results = await bracket(hub)
        reasons = {result.reason for result in results if result.outcome is Outcome.FAILED}
        assert any(reason.startswith("training diverged: the loss is inf at step 1") for reason in reasons)


SHARES = PrivacyTerms(
    privacy=Privacy(placement="distributed", mechanism="discrete_gaussian", clip=1.0, noise_multiplier=4.0), rounds=1,
    round=1, active=3,
)  # fmt: skip


async def asked_under_masks_and_noise(hub: LyingHub) -> list[Result]:
    """The same questions, where each site adds its share of the noise within the masked sum."""
    plan = make_plan(
        SecureAggregation(mode="compensator", bits=64), participants=3, weighting="uniform", tail=noise_tail(SHARES)
    )
    return (await bracket(hub, plan=plan, privacy=SHARES))[2]


async def test_whether_a_task_with_shares_of_noise_failed_tells_nothing(attacked: Attacked, tmp_path: Path) -> None:
    async with attacked(sites=3, worker=lambda _: site_with_secret(tmp_path)) as hub:
        results = await asked_under_masks_and_noise(hub)
        assert {(result.outcome, result.reason) for result in results} == {(Outcome.DONE, "")}


@pytest.mark.control("test_whether_a_task_with_shares_of_noise_failed_tells_nothing")
async def test_control_where_training_with_shares_of_noise_may_fail_it_answers_the_hubs_questions(
    attacked: Attacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execute, "privately", lambda work, _private, train: train(work))
    async with attacked(sites=3, worker=lambda _: site_with_secret(tmp_path)) as hub:
        results = await asked_under_masks_and_noise(hub)
        assert {result.outcome for result in results} == {Outcome.DONE, Outcome.FAILED}
