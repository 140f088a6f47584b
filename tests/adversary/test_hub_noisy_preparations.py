"""A hub against a preparation whose sums have noise: it asks one site for what it wants to know and all others for what
it knows, so that their shares of noise are all that is beside the one's numbers; or it asks the same again and again,
so that noise becomes a mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from adversary.ages import AGES, ROWS, TARGET
from adversary.lying_hub import LyingHub, refusals
from adversary.test_hub_preparations import sums_of
from adversary.test_hub_requests import signs_the_same
from hanse_datapod.policy.privacy import PrivacyPolicy
from hanse_fabric.chain import read_chain
from hanse_fabric.messages import Outcome, PrivacyTerms, Result, TaskKind
from hanse_fabric.messages.privacy import Privacy
from hanse_fabric.tensors.file import decode_tensors
from hanse_learning.preparation.noisy import BINS, NOISY, STEP, noisy_rings
from hanse_privacy.accounting.accountant import make_accountant
from hanse_privacy.accounting.events import ReleaseEvent
from hanse_privacy.joint import Computation
from hanse_privacy.ledger import NAME as LEDGER
from hanse_privacy.noise.counts import CountNoise
from hanse_workflows.joint_sums import plan_of


def terms(active: int, **privacy: Any) -> PrivacyTerms:
    return PrivacyTerms(privacy=Privacy.model_validate(privacy), rounds=1, round=1, active=active)


SHARES = terms(
    len(ROWS), placement="distributed", mechanism="discrete_gaussian", noise_multiplier=1e-3,
    preparation={"noise_multiplier": 1e-3},
)  # fmt: skip
"""Of so little noise that the binding of requests alone stands between the hub and the target, at sites whose budget
lets that pass."""
RICH = {"privacy": {"epsilon": 1e9}}


def cut_at(low: float, high: float) -> dict[str, Any]:
    return {"prepare": [{"name": "age", "kind": "number", "clip": [low, high]}]}


async def targets_mean_age(hub: LyingHub) -> tuple[float | None, str]:
    """All others' ages are cut to the lower end of far ones, so that the hub knows what they add."""
    plan = plan_of(Computation("prepare", "sums", rings=noisy_rings(len(ROWS))), len(ROWS))
    results = await hub.ask(
        *(
            hub.task(
                site, "s1", kind=TaskKind.PREPARE, plan=plan, run="run000000001", round=0, privacy=SHARES,
                config=cut_at(0, 100) if site == TARGET else cut_at(1e6, 2e6),
            )
            for site in hub.stage.names
        )
    )  # fmt: skip
    told, why = await sums_of(hub, results, "s1", "run000000001")
    if told is None:
        return None, why
    return 50 * (1 + float(told[NOISY][1]) / STEP + len(ROWS) - 1), ""


async def test_sums_with_noise_are_not_of_columns_that_were_cut_to_other_ends_at_one_site(wards: Any) -> None:
    async with wards(**RICH) as hub:
        read, why = await targets_mean_age(hub)
        assert read is None
        assert "another request than most others" in why


@pytest.mark.control("test_sums_with_noise_are_not_of_columns_that_were_cut_to_other_ends_at_one_site")
async def test_control_where_sites_sign_the_same_one_sites_mean_is_read_through_all_shares(
    wards: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    signs_the_same(monkeypatch)
    async with wards(**RICH) as hub:
        read, why = await targets_mean_age(hub)
        assert why == ""
        assert read == pytest.approx(np.mean(AGES[-1]), abs=2.0)


ROWS_HIDDEN = terms(1, placement="local", mechanism="dp_sgd", epsilon=1.0, preparation={"share": 0.5})


def two_questions() -> float:
    """The epsilon of two answers, at the policy's delta."""
    accountant = make_accountant("pld")
    accountant.compose(charged_once(), 2)
    return accountant.epsilon(1e-5)


def charged_once() -> ReleaseEvent:
    from hanse_privacy.accounting.calibration import noise_for

    return ReleaseEvent("gaussian", noise_for("gaussian", 0.5, 0.5e-5, 1))


async def asked_often(hub: LyingHub) -> list[Result]:
    """Three questions for the same sums, and the first of them again."""
    answers = []
    for number in (1, 2, 3, 1):
        task = hub.task(
            "site-0", "prepare", kind=TaskKind.PREPARE, mode=None, run=f"run{number:09}", round=0,
            config=cut_at(0, 100), privacy=ROWS_HIDDEN,
        )  # fmt: skip
        answers.append((await hub.ask(task))["site-0"])
    return answers


async def vector(hub: LyingHub, result: Result) -> list[int]:
    return [int(number) for number in decode_tensors(await hub.file(result, result.update))[1][NOISY]]


def alone(budget: float) -> dict[str, Any]:
    """The policy of a site that answers by itself."""
    privacy = {"required": True, "epsilon": budget}
    return {"masking": {"required": False}, "minimum_participants": 1, "privacy": privacy}


async def test_a_noisy_preparation_that_is_asked_again_is_paid_again_or_is_the_same(wards: Any) -> None:
    async with wards(**alone(1.0001 * two_questions())) as hub:
        first, second, third, again = await asked_often(hub)
        assert [each.outcome for each in (first, second, third)] == [Outcome.DONE, Outcome.DONE, Outcome.REFUSED]
        assert "the site's privacy budget forbids it" in refusals({"site-0": third})["site-0"]
        assert await vector(hub, first) != await vector(hub, second)
        # One row is STEP: what is told has noise of some rows in every number.
        exact = ROWS[0] * STEP
        assert abs((await vector(hub, first))[0] - exact) > 1
        assert await vector(hub, again) == await vector(hub, first)
        home = hub.stage.sites["site-0"].home
        charges = [entry for entry in read_chain(home, LEDGER) if entry["what"] == "charge"]
        assert [ReleaseEvent.from_json(entry["event"]) for entry in charges] == [charged_once()] * 2
        assert {entry["note"] for entry in charges} == {"preparation, local"}


@pytest.mark.control("test_a_noisy_preparation_that_is_asked_again_is_paid_again_or_is_the_same")
async def test_control_where_noise_is_left_out_charged_answers_are_exact(
    wards: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CountNoise, "add", lambda _self, numbers: numbers)
    async with wards(**alone(100.0)) as hub:
        first, second, *_ = await asked_often(hub)
        assert await vector(hub, first) == await vector(hub, second)
        assert (await vector(hub, first))[0] == ROWS[0] * STEP


HARDLY_ANY = terms(
    1, placement="local", mechanism="dp_sgd", noise_multiplier=1e-3, preparation={"noise_multiplier": 1e-3}
)
"""Of an epsilon of millions, which is written down and hides nothing."""
UNLIMITED = {"masking": {"required": False}, "minimum_participants": 1, "privacy": {"required": True}}


async def histogram_of_ages(hub: LyingHub) -> tuple[list[float] | None, str]:
    """People of one site by bins of age, with noise of a thousandth of a person."""
    rules = {"prepare": [{"name": "age", "kind": "number", "scale": "robust", "clip": [0, 100]}]}
    task = hub.task(
        "site-0", "prepare", kind=TaskKind.PREPARE, mode=None, run="run000000001", round=0, config=rules,
        privacy=HARDLY_ANY,
    )  # fmt: skip
    answer = (await hub.ask(task))["site-0"]
    if answer.outcome is not Outcome.DONE:
        return None, answer.reason
    return [number / STEP for number in await vector(hub, answer)], ""


async def test_noise_that_hides_nothing_opens_no_fine_questions_where_the_site_has_no_ceiling(wards: Any) -> None:
    async with wards(**UNLIMITED) as hub:
        told, why = await histogram_of_ages(hub)
        assert told is None
        assert "asking.protocols: quantiles" in why
        assert "privacy.epsilon" in why


@pytest.mark.control("test_noise_that_hides_nothing_opens_no_fine_questions_where_the_site_has_no_ceiling")
async def test_control_where_any_noise_is_trusted_one_sites_histogram_is_read(
    wards: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PrivacyPolicy, "has_ceiling", lambda *_: True)
    async with wards(**UNLIMITED) as hub:
        told, why = await histogram_of_ages(hub)
        assert told is not None, why
        people, _ = np.histogram(AGES[0], BINS, (0, 100))
        assert np.rint(told[-BINS:]).tolist() == people.tolist()
