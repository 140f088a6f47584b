"""A hub that says of a run that it will ask little of it, and asks much: a ledger adds up by that plan, so what it says
would be what is charged, whatever has left. Or that says how large batches will be, and counts the entries of the
ledger whose head it hears: where a batch holds all examples, all releases of a run are of one kind, which needs no
plan. Or that names noise and numbers for which adding up takes for ever: a site adds up in its agent, with its ledger
locked.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from adversary.ages import ROWS
from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub, refusals
from adversary.test_hub_noisy_preparations import ROWS_HIDDEN, alone, cut_at
from hanse_datapod.policy.privacy import PrivacyPolicy
from hanse_datapod.privacy.books import balances
from hanse_fabric.chain import read_chain
from hanse_fabric.messages import FindingCode, PrivacyTerms, SiteCheck, TaskKind
from hanse_fabric.messages.privacy import MOST_ROUNDS, Privacy, PrivateMetrics
from hanse_privacy.accounting import grid
from hanse_privacy.accounting.plan import ReleasePlan
from hanse_privacy.ledger import NAME, PLAN
from points_of_sums import counted
from privacy_oracle import epsilon_of_mixed

__all__ = ["counted"]
ASKED, DELTA = 5, 1e-5
RULES: dict[str, Any] = {
    "sites": 2, "masking": {"required": False}, "minimum_participants": 1,
    "privacy": {"required": True, "epsilon": 100.0},
}  # fmt: skip


def little(rounds: int) -> PrivacyTerms:
    """Of so many rounds, with metrics that have noise of their own."""
    metrics = PrivateMetrics(epsilon=0.2, bounds={"loss": 1.0})
    privacy = Privacy(placement="local", mechanism="gaussian", noise_multiplier=100_000.0, metrics=metrics)
    return PrivacyTerms(privacy=privacy, rounds=rounds, round=1, active=1)


async def charged_and_true(hub: LyingHub, said: int) -> tuple[float, float]:
    """What a site's ledger tells after many rounds of a run that was said to have one, and what they have told."""
    for number in range(ASKED):
        asked = hub.task("site-0", f"r{number}-train", mode=None, model=MODEL, round=1, privacy=little(said))
        assert not refusals(await hub.ask(asked))
    home = hub.stage.sites["site-0"].home
    entries = list(read_chain(home, NAME))
    assert [entry["what"] for entry in entries].count(PLAN) == 1
    charges = [entry for entry in entries if entry["what"] == "charge"]
    assert len(charges) == 2 * ASKED
    events = [
        (each["event"]["kind"], each["event"]["amount"], each["event"]["rate"], each["count"]) for each in charges
    ]
    spent = next(row.spent for row in balances(home, PrivacyPolicy(delta=DELTA)) if row.scope == "site")
    return spent, epsilon_of_mixed(events, DELTA)


@pytest.mark.parametrize("said", [1, 1000])
async def test_what_a_hub_says_of_a_run_makes_nothing_cheaper_that_it_asks(attacked: Attacked, said: int) -> None:
    async with attacked(**RULES) as hub:
        spent, true = await charged_and_true(hub, said)
    assert spent >= true


@pytest.mark.control("test_what_a_hub_says_of_a_run_makes_nothing_cheaper_that_it_asks")
async def test_control_where_a_plan_is_charged_as_it_was_said_the_ledger_tells_less_than_has_left(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReleasePlan, "reached", lambda self, _done: self.releases)
    async with attacked(**RULES) as hub:
        spent, true = await charged_and_true(hub, 1)
    assert spent < 0.5 * true


async def most_examples(hub: LyingHub) -> int | None:
    """The smallest batch for which a site's ledger has other entries than for the largest; None: there is none."""
    before = 0

    async def entries(number: int, batch: int) -> int:
        nonlocal before
        config = cut_at(0, 100) | {"follows": {"train": {"batch_size": batch}}}
        run = f"run{number:09}"
        task = hub.task(
            "site-0", "prepare", kind=TaskKind.PREPARE, mode=None, run=run, round=0, config=config, privacy=ROWS_HIDDEN
        )
        [result] = (await hub.ask(task)).values()
        assert result.ledger is not None, result.reason
        before, more = result.ledger.entries, result.ledger.entries - before
        return more

    low, high = 1, 128
    of_small, of_large = await entries(1, low), await entries(2, high)
    if of_small == of_large:
        return None
    for number in range(3, 10):
        guess = (low + high) // 2
        low, high = (guess, high) if await entries(number, guess) == of_small else (low, guess)
    return high


async def test_how_many_entries_a_ledger_has_does_not_tell_how_many_examples_there_are(wards: Any) -> None:
    async with wards(**alone(1e4), asking={"runs": 1000}) as hub:
        assert await most_examples(hub) is None


@pytest.mark.control("test_how_many_entries_a_ledger_has_does_not_tell_how_many_examples_there_are")
async def test_control_where_a_plan_is_left_out_that_is_not_needed_their_number_is_found(
    wards: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = ReleasePlan.of
    monkeypatch.setattr(ReleasePlan, "of", lambda releases, rounds, note="", **_: of(releases, rounds, note))
    async with wards(**alone(1e4), asking={"runs": 1000}) as hub:
        assert await most_examples(hub) == ROWS[0]


async def asked_of_endless_sums(hub: LyingHub) -> list[FindingCode]:
    """A question about as many rounds as a job may have, with much noise and next to nothing of metrics, and the
    first of these rounds."""
    metrics = PrivateMetrics(epsilon=1e-4, bounds={"loss": 1.0})
    privacy = Privacy(placement="local", mechanism="laplace", noise_multiplier=100_000.0, metrics=metrics)
    terms = PrivacyTerms(privacy=privacy, rounds=MOST_ROUNDS, round=1, active=1)
    config = {"kinds": ["train"], "rounds": terms.rounds, "model": {"name": "linear"}, "train": {"steps": 1}}
    question = hub.task(
        "site-0", "preflight", kind=TaskKind.CHECK, mode=None, config=config, bound=False, privacy=terms
    )
    [answer] = (await hub.ask(question)).values()
    assert not refusals(await hub.ask(hub.task("site-0", "r1-train", mode=None, model=MODEL, round=1, privacy=terms)))
    return [finding.code for finding in SiteCheck.decode(answer.payload or b"").findings]


async def test_no_plan_makes_a_site_add_up_on_more_points_than_it_has_time_for(
    attacked: Attacked, counted: list[float]
) -> None:
    async with attacked(**RULES) as hub:
        assert FindingCode.ENOUGH in await asked_of_endless_sums(hub)
    assert 0 < max(counted) <= grid.MOST_POINTS


@pytest.mark.control("test_no_plan_makes_a_site_add_up_on_more_points_than_it_has_time_for")
async def test_control_where_points_are_not_counted_a_question_alone_takes_more_of_them(
    attacked: Attacked, counted: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    most = grid.MOST_POINTS
    monkeypatch.setattr(grid, "MOST_POINTS", math.inf)
    async with attacked(**RULES) as hub:
        await asked_of_endless_sums(hub)
    assert max(counted) > most
