"""An owner, with an honest hub: what a project's owner can read of one site by what jobs, runs and messages tell."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import LyingHub
from adversary.oracle import TERMS
from adversary.stage import FEATURES, Regression
from hanse_datapod.agent import watched_work
from hanse_datapod.answers import plain
from hanse_datapod.policy.privacy import PrivacyPolicy
from hanse_datapod.privacy.books import restore_ledger
from hanse_datapod.privacy.metrics import CoveredMetrics
from hanse_datapod.privacy.reservation import Reservation
from hanse_datapod.worker.port import WorkOutcome, WorkRequest
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import LedgerHead, Outcome, PrivacyTerms, Progress, Result, Task, TaskKind
from hanse_fabric.messages.privacy import Privacy, PrivateMetrics
from hanse_fabric.subjects import PROGRESS
from hanse_privacy import witness
from hanse_privacy.ledger import NAME
from hanse_privacy.witness import Witness, signed_head

MODEL = np.linspace(0.5, -0.5, FEATURES)
PRIVATE = {"sites": 1, "masking": {"required": False}, "privacy": {"required": True}, "minimum_participants": 1}


async def exact_loss_of_the_test_people(hub: LyingHub) -> tuple[float | None, Result]:
    """What one evaluation tells of the people whom a private site has set aside for tests."""
    task = hub.task("site-0", "r1-evaluate", kind=TaskKind.EVALUATE, model=MODEL, mode=None, privacy=TERMS)
    answer = (await hub.ask(task))["site-0"]
    return answer.metrics.get("loss"), answer


async def test_a_site_with_required_privacy_evaluates_for_nobody(attacked: Attacked) -> None:
    async with attacked(**PRIVATE) as hub:
        loss, answer = await exact_loss_of_the_test_people(hub)
        assert loss is None
        assert "privacy.uncovered: evaluation, whose metrics no noise covers" in answer.reason


@pytest.mark.control("test_a_site_with_required_privacy_evaluates_for_nobody")
async def test_control_where_evaluation_is_open_the_exact_loss_of_the_test_people_costs_nothing(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PrivacyPolicy, "tells", lambda *_: True)
    async with attacked(**PRIVATE) as hub:
        loss, _ = await exact_loss_of_the_test_people(hub)
        worker = hub.stage.sites["site-0"].worker
        assert loss == np.mean((worker.x @ MODEL.astype(np.float32).astype(float) - worker.y) ** 2)
        assert not (hub.stage.sites["site-0"].home / f"{NAME}.jsonl").exists()


EPSILON = 0.25
CHARGED = TERMS.model_copy(
    update={
        "privacy": TERMS.privacy.model_copy(
            update={"metrics": PrivateMetrics(epsilon=EPSILON, bounds={"loss": 4.0, "accuracy": 1.0})}
        )
    }
)


class Fails(Regression):
    """A worker whose evaluation fails on the data, where a model is chosen for it."""

    async def work(self, request: WorkRequest, on_progress: Callable[[float, str], None]) -> WorkOutcome:
        outcome = await super().work(request, on_progress)
        if outcome.metrics["loss"] > 1e6:
            raise HanseError(ErrorCode.TRAINING_FAILED, f"evaluation: the loss is {outcome.metrics['loss']}")
        return outcome


async def charged_evaluations(hub: LyingHub) -> list[Result]:
    """Evaluations by models of which each is a question to the data, until one is refused."""
    answers = []
    for number in range(5):
        task = hub.task(
            "site-0", f"r{number}-evaluate", kind=TaskKind.EVALUATE, model=MODEL * 1e6 ** (number % 2), mode=None,
            privacy=CHARGED,
        )  # fmt: skip
        answers.append((await hub.ask(task))["site-0"])
    return answers


async def test_each_evaluation_has_noise_and_is_paid_whether_or_not_it_fails(attacked: Attacked) -> None:
    budget = {"required": True, "epsilon": 4 * EPSILON, "delta": 0.0}
    async with attacked(worker=Fails, **(PRIVATE | {"privacy": budget})) as hub:
        answers = await charged_evaluations(hub)
        assert [answer.outcome for answer in answers] == [*[Outcome.DONE] * 4, Outcome.REFUSED]
        assert "epsilon 1 of 1 is spent" in answers[-1].reason
        worker = hub.stage.sites["site-0"].worker
        exact = np.mean((worker.x @ MODEL.astype(np.float32).astype(float) - worker.y) ** 2)
        told = [answer.metrics["loss"] for answer in answers[:4]]
        assert all(abs(value - exact) > 1e-3 for value in told)
        assert {tuple(answer.metrics) for answer in answers[:4]} == {("accuracy", "loss")}
        assert {(answer.examples, answer.seconds, answer.reason) for answer in answers[:4]} == {(1, 0.0, "")}
        heads = [answer.ledger.entries for answer in answers[:4] if answer.ledger is not None]
        assert heads == [3, 5, 7, 9]  # the run's plan; each is charged, and settled


def fails(_: Reservation, __: Task, error: HanseError, ___: int) -> WorkOutcome:
    raise error


@pytest.mark.control("test_each_evaluation_has_noise_and_is_paid_whether_or_not_it_fails")
async def test_control_where_noise_is_left_out_charged_evaluations_tell_exact_losses(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CoveredMetrics, "noisy", lambda _, outcome: outcome)
    monkeypatch.setattr(Reservation, "without_answer", fails)
    async with attacked(worker=Fails, **PRIVATE) as hub:
        answers = await charged_evaluations(hub)
        assert answers[1].outcome is Outcome.FAILED
        worker = hub.stage.sites["site-0"].worker
        exact = np.mean((worker.x @ MODEL.astype(np.float32).astype(float) - worker.y) ** 2)
        assert answers[0].metrics["loss"] == exact


INFO = {"model": {"name": "linear"}, "train": {"steps": 1}, "info": ["steps", "first_loss"]}


async def private_numbers(hub: LyingHub) -> tuple[int, dict[str, float], float]:
    """(number of examples, metrics and numbers for the strategy, seconds) that come with a private update."""
    task = hub.task("site-0", model=MODEL, mode=None, privacy=TERMS, config=INFO)
    answer = (await hub.ask(task))["site-0"]
    assert answer.outcome is Outcome.DONE
    return answer.examples, answer.metrics | (answer.info or {}), answer.seconds


class Measured(Regression):
    """A worker that says how long it took, and what a strategy may ask for."""

    async def work(self, request: WorkRequest, on_progress: Callable[[float, str], None]) -> WorkOutcome:
        info = {"steps": 3.0, "first_loss": 0.7}
        return replace(await super().work(request, on_progress), seconds=2.5, info=info)


async def test_beside_a_private_update_no_number_leaves_that_noise_does_not_cover(attacked: Attacked) -> None:
    async with attacked(worker=Measured, **PRIVATE) as hub:
        assert await private_numbers(hub) == (1, {}, 0.0)


@pytest.mark.control("test_beside_a_private_update_no_number_leaves_that_noise_does_not_cover")
async def test_control_where_they_are_open_exact_numbers_of_examples_seconds_and_losses_leave(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PrivacyPolicy, "tells", lambda *_: True)
    monkeypatch.setattr(plain, "seconds_told", lambda _policy, _task, took: took)
    monkeypatch.setattr(Reservation, "keep_covered", lambda _, outcome: outcome)
    async with attacked(worker=Measured, **PRIVATE) as hub:
        examples, numbers, seconds = await private_numbers(hub)
        assert examples == len(hub.stage.sites["site-0"].worker.x)
        assert seconds == 2.5
        assert numbers.keys() == {"loss", "steps", "first_loss"}


STEPS = 37


class Telling(Regression):
    """A worker that tells after which of its steps it is: of its people, by the size of a batch."""

    async def work(self, request: WorkRequest, on_progress: Callable[[float, str], None]) -> WorkOutcome:
        for step in range(20, 25):
            on_progress(step / STEPS, f"step {step} of {STEPS}")
            await asyncio.sleep(0.05)
        return await super().work(request, on_progress)


@pytest.fixture
def progress_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sites say how far they are more often than once in a test's work."""
    monkeypatch.setattr(watched_work, "TICK_S", 0.01)


async def steps_told(hub: LyingHub) -> int:
    """Of how many steps a masked task's first sign of progress speaks."""
    names = hub.stage.names
    await hub.ask(*(hub.task(name, model=MODEL) for name in names))
    said = await hub.said(PROGRESS.of(project=hub.stage.project, run=hub.stage.run, participant=names[0]))
    return Fraction(Progress.decode(said).fraction).limit_denominator(1000).denominator


@pytest.mark.usefixtures("progress_in_time")
async def test_the_progress_of_a_masked_task_does_not_tell_its_number_of_steps(attacked: Attacked) -> None:
    async with attacked(worker=Telling) as hub:
        assert await steps_told(hub) == 2


@pytest.mark.usefixtures("progress_in_time")
@pytest.mark.control("test_the_progress_of_a_masked_task_does_not_tell_its_number_of_steps")
async def test_control_exact_progress_tells_the_number_of_steps(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_work, "coarse", lambda *progress: progress)
    async with attacked(worker=Telling) as hub:
        assert await steps_told(hub) == STEPS


async def progress_that_left(hub: LyingHub) -> int:
    """How often a private task said how far it is, by the site's own log of what left."""
    answer = (await hub.ask(hub.task("site-0", model=MODEL, mode=None, privacy=TERMS)))["site-0"]
    assert answer.outcome is Outcome.DONE, answer.reason
    return (hub.stage.sites["site-0"].home / "outbox.jsonl").read_text().count('"progress"')


@pytest.mark.usefixtures("progress_in_time")
async def test_a_site_with_required_privacy_does_not_tell_how_fast_its_work_goes(attacked: Attacked) -> None:
    async with attacked(worker=Telling, **PRIVATE) as hub:
        assert await progress_that_left(hub) == 0


@pytest.mark.usefixtures("progress_in_time")
@pytest.mark.control("test_a_site_with_required_privacy_does_not_tell_how_fast_its_work_goes")
async def test_control_where_durations_are_open_progress_tells_them(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PrivacyPolicy, "tells", lambda *_: True)
    async with attacked(worker=Telling, **PRIVATE) as hub:
        assert await progress_that_left(hub) > 0


BUDGET = {"required": True, "epsilon": 1.2, "delta": 0.0}
HALF = PrivacyTerms(
    privacy=Privacy(placement="local", mechanism="laplace", clip=1.0, delta=0.0, noise_multiplier=4.0), rounds=1,
    round=1, active=1,
)  # fmt: skip


async def charged_round(hub: LyingHub, number: int, seen: LedgerHead | None) -> Result:
    """A round that costs 0.5, with the head of the ledger that the hub has seen last."""
    task = hub.task("site-0", f"r{number}-train", model=MODEL, mode=None, privacy=HALF)
    return (await hub.ask(task.model_copy(update={"ledger": seen})))["site-0"]


async def spend_again(hub: LyingHub, folder: Path, *, back: int, tell: bool = True) -> Result:
    """Spend a site's budget, lay back its ledger as it was after so many rounds (0: none), and ask for another; with
    the head that was seen last, if the hub is to `tell`."""
    site, seen = hub.stage.sites["site-0"], None
    files = [site.home / f"{NAME}.{part}" for part in ("jsonl", "head")]
    for number in (1, 2):
        answer = await charged_round(hub, number, seen)
        assert answer.outcome is Outcome.DONE, answer.reason
        seen = answer.ledger
        assert seen is not None
        if number == back:
            for file in files:
                shutil.copy(file, folder / file.name)
    assert "budget forbids it" in (await charged_round(hub, 3, seen)).reason
    await site.stop()
    for file in files:
        file.unlink()
        if back:
            shutil.copy(folder / file.name, file)
    await site.start()
    return await charged_round(hub, 4, seen if tell else None)


@pytest.mark.parametrize("back", [0, 1])
async def test_a_ledger_that_is_deleted_or_older_restores_no_budget(
    attacked: Attacked, tmp_path: Path, back: int
) -> None:
    async with attacked(**(PRIVATE | {"privacy": BUDGET})) as hub:
        answer = await spend_again(hub, tmp_path, back=back)
        assert "ledger is older than what it has signed before" in answer.reason
        # Not without the hub's word either: the site has written down that it lacks something.
        answer = await charged_round(hub, 5, None)
        assert "ledger is older than what it has signed before" in answer.reason
        site = hub.stage.sites["site-0"]
        await site.stop()
        restore_ledger(site.home, site.policy.privacy, "the disk broke", (hub.stage.project, 1.0))
        await site.start()
        answer = await charged_round(hub, 6, None)
        assert "epsilon 1 of 1.2 is spent" in answer.reason or "epsilon 1.5 of 1.2 is spent" in answer.reason


@pytest.mark.parametrize("back", [0, 1])
@pytest.mark.control("test_a_ledger_that_is_deleted_or_older_restores_no_budget")
async def test_control_where_nobody_looks_back_an_older_ledger_spends_the_budget_twice(
    attacked: Attacked, tmp_path: Path, back: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Witness, "lacks", lambda *_: False)
    async with attacked(**(PRIVATE | {"privacy": BUDGET})) as hub:
        answer = await spend_again(hub, tmp_path, back=back)
        assert answer.outcome is Outcome.DONE


async def answers_beside_a_forged_head(hub: LyingHub) -> Result:
    """A charged round, with the head of a longer ledger than the site has, which somebody else has signed."""
    site = hub.stage.sites["site-0"]
    forged = signed_head(99, "e" * 64, project=hub.stage.project, participant=site.name, key=SigningKey.create())
    return await charged_round(hub, 1, forged)


async def test_a_head_that_the_site_has_not_signed_stops_nobody(attacked: Attacked) -> None:
    async with attacked(**(PRIVATE | {"privacy": BUDGET})) as hub:
        assert (await answers_beside_a_forged_head(hub)).outcome is Outcome.DONE


@pytest.mark.control("test_a_head_that_the_site_has_not_signed_stops_nobody")
async def test_control_where_any_head_is_taken_for_the_sites_a_forged_one_stops_it(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(witness, "is_own", lambda *_, **__: True)
    async with attacked(**(PRIVATE | {"privacy": BUDGET})) as hub:
        assert "ledger is older" in (await answers_beside_a_forged_head(hub)).reason
