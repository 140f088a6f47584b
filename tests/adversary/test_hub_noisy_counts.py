"""A hub that wants the exact counts of a private site's test examples: by counts that are to have noise without a
section that charges it, by noise smaller than is charged, by asking again and again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from adversary.ages import SCHEMA, on_ages
from adversary.conftest import Attacked
from adversary.lying_hub import LyingHub
from hanse_datapod.policy.privacy import PrivacyPolicy
from hanse_datapod.privacy.metrics import CoveredMetrics
from hanse_fabric.messages import Outcome, Result, TaskKind
from hanse_fabric.messages.privacy import Privacy, PrivacyTerms, PrivateMetrics
from hanse_fabric.tensors.words import unpack_words
from hanse_learning.pooled import layout
from hanse_learning.pooled.layout import Counts, told_of, with_noise
from hanse_learning.pooled.noisy import STEPS
from hanse_privacy.ledger import NAME as LEDGER
from hanse_schemas.job import Evaluation

AGES = [[20.0 + 1.5 * at for at in range(40)]]
MODEL = {"output.weight": np.array([[0.0], [1.0]]), "output.bias": np.array([0.0, -40.0])}
EPSILON = 1.0
SPENT = PrivateMetrics(epsilon=EPSILON)
COUNTS = with_noise(Evaluation(metrics=("auroc", "f1"), classes=2, bins=8), SPENT)
POLICY = {
    "sites": 1, "masking": {"required": False}, "minimum_participants": 1,
    "privacy": {"required": True, "epsilon": 3 * EPSILON, "delta": 0.0},
}  # fmt: skip


def terms(metrics: PrivateMetrics | None = SPENT) -> PrivacyTerms:
    section = Privacy(placement="local", mechanism="dp_sgd", noise_multiplier=1.0, metrics=metrics)
    return PrivacyTerms(privacy=section, rounds=1, round=1, active=1)


@pytest.fixture
def ward(attacked: Attacked, tmp_path: Path) -> Any:
    worker = on_ages(tmp_path, AGES)
    return lambda **rules: attacked(worker=worker, schema=SCHEMA, **(POLICY | rules))


async def asked(
    hub: LyingHub, number: int, counts: Counts = COUNTS, privacy: PrivacyTerms | None = None
) -> Result:  # fmt: skip
    config = {"model": {"name": "logistic"}, "train": {}, "evaluate": {"counts": told_of(counts)}}
    task = hub.task(
        "site-0", f"r{number}-evaluate", kind=TaskKind.EVALUATE, model=MODEL, mode=None, config=config, privacy=privacy
    )  # fmt: skip
    return (await hub.ask(task))["site-0"]


def cells(answer: Result) -> NDArray[np.float64]:
    """Examples by class and bin, as the hub reads them."""
    words = unpack_words(answer.counted or "", COUNTS.words, field="counted")
    return np.asarray(words.view(np.int64)[COUNTS.parts["scores"]] / STEPS)


@pytest.mark.parametrize("privacy", [None, terms(None), terms(PrivateMetrics(epsilon=9.0, bounds={"loss": 1.0}))])
async def test_counts_that_are_to_have_noise_are_not_told_where_it_is_not_charged(
    ward: Any, privacy: PrivacyTerms | None
) -> None:
    async with ward(privacy={"required": privacy is not None}) as hub:
        answer = await asked(hub, 1, privacy=privacy)
        assert answer.outcome is Outcome.REFUSED
        assert not answer.counted
        assert "privacy" in answer.reason or "scale" in answer.reason


@pytest.mark.control("test_counts_that_are_to_have_noise_are_not_told_where_it_is_not_charged")
async def test_control_where_the_policy_takes_the_hubs_word_exact_counts_leave_and_cost_nothing(
    ward: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PrivacyPolicy, "check", lambda _, __: None)
    async with ward(privacy={"required": False}) as hub:
        exact = cells(await asked(hub, 1))
        assert (exact == np.rint(exact)).all()
        assert exact.sum() > 0
        assert not (hub.stage.sites["site-0"].home / f"{LEDGER}.jsonl").exists()


@pytest.mark.parametrize("told", [{"scale": 1e-6}, {"scale": 0.5}, {"rows": 1000}, {"scale": None}])
async def test_noise_that_is_smaller_than_the_charge_is_drawn_by_no_site(ward: Any, told: dict[str, Any]) -> None:
    async with ward() as hub:
        answer = await asked(hub, 1, replace(COUNTS, **told), terms())
        assert answer.outcome is Outcome.REFUSED, answer.reason
        assert not answer.counted
        assert not (hub.stage.sites["site-0"].home / f"{LEDGER}.jsonl").exists()  # nor is it charged


@pytest.mark.control("test_noise_that_is_smaller_than_the_charge_is_drawn_by_no_site")
async def test_control_where_a_site_draws_the_noise_that_the_hub_says_counts_are_as_good_as_exact(
    ward: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "scale_of", lambda counts, _: counts.scale)
    async with ward() as hub:
        told = cells(await asked(hub, 1, replace(COUNTS, scale=1e-6), terms()))
        assert np.abs(told - np.rint(told)).max() < 0.05
        assert np.rint(told).sum() > 0


async def three_answers(hub: LyingHub) -> list[Result]:
    """The same question by another name, until the budget is spent."""
    return [await asked(hub, number, privacy=terms()) for number in range(1, 5)]


async def test_who_asks_again_hears_other_noise_and_is_charged_until_the_budget_is_spent(ward: Any) -> None:
    async with ward() as hub:
        answers = await three_answers(hub)
        assert [answer.outcome for answer in answers] == [*[Outcome.DONE] * 3, Outcome.REFUSED]
        told = [cells(answer) for answer in answers[:3]]
        assert all(np.abs(one - np.rint(one)).max() > 0 for one in told)
        assert not np.array_equal(told[0], told[1])
        assert "budget" in answers[3].reason
        again = await asked(hub, 1, privacy=terms())  # the same task: the recorded answer
        assert again.counted == answers[0].counted
        assert again.ledger == answers[0].ledger


@pytest.mark.control("test_who_asks_again_hears_other_noise_and_is_charged_until_the_budget_is_spent")
async def test_control_where_noise_is_left_out_one_question_tells_exactly_who_is_in_which_bin(
    ward: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CoveredMetrics, "_counted", lambda _, counted: counted)
    async with ward() as hub:
        exact = cells(await asked(hub, 1, privacy=terms()))
    assert (exact == np.rint(exact)).all()
    assert exact.sum() > 0
