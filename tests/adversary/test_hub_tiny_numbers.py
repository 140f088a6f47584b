"""A hub, or an owner, whose terms have numbers next to zero: what is charged follows from exact numbers, and what is
done is done with floating-point ones, which lose what is too small.

Two sites differ by one patient. Whoever tells them apart again and again, for a small epsilon, has beaten the noise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adversary import workers
from adversary.conftest import Attacked
from adversary.lying_hub import LyingHub, refusals
from hanse_datapod.data.settings import DataSettings
from hanse_fabric.messages import PrivacyTerms, TaskKind
from hanse_fabric.messages.privacy import Privacy, PrivateMetrics
from hanse_learning.site import evaluation, example_gradients
from hanse_privacy.accounting import terms
from hanse_schemas.schema import ArraySchema

TESTED, TRAINED, TIMES = 401, 40, 10
RULES = {
    "sites": 2, "masking": {"required": False}, "minimum_participants": 1,
    "privacy": {"required": True, "epsilon": 1000.0},
    "schema": ArraySchema(shape=(1,), task="classification", classes=2),
}  # fmt: skip
LEAST = 5e-324
"""The smallest number above zero: a mean of values up to it is nothing, or all of it."""
SURELY_0 = {"output.weight": np.zeros((2, 1)), "output.bias": np.array([53.0, 0.0])}
"""A model for which class 1 has a probability of e^-53, whose square is nothing in float32."""
LOGISTIC = {"name": "logistic"}


def site_with_or_without(folder: Path) -> Any:
    """A worker by its number. Of the sites' test examples half are of class 0, and at site 0 one more. Of the training
    examples one has a value other than 0, at site 0 alone."""

    def worker(index: int) -> Any:
        train, test = folder / f"train-{index}.npz", folder / f"test-{index}.npz"
        of_0 = TESTED // 2 + (index == 0)
        np.savez(test, x=np.zeros((TESTED, 1)), y=np.repeat([0, 1], [of_0, TESTED - of_0]))
        values = np.zeros((TRAINED, 1))
        values[0] = index == 0
        np.savez(train, x=values, y=np.zeros(TRAINED, np.int64))
        return workers.on(DataSettings(train=train, test=test))

    return worker


def by_example(**section: Any) -> PrivacyTerms:
    section = {"placement": "local", "mechanism": "dp_sgd", "noise_multiplier": 1e4} | section
    return PrivacyTerms(privacy=Privacy.model_validate(section), rounds=1, round=1, active=2)


async def told_apart_by_a_metric(hub: LyingHub) -> int:
    """How often the site with one more of class 0 says more than none, and the other none: of `TIMES`."""
    metrics = PrivateMetrics(epsilon=0.2, bounds={"accuracy": LEAST})
    told: list[bool] = []
    for number in range(TIMES):
        results = await hub.ask(
            *(
                hub.task(
                    name, f"r1-evaluate-{number}", kind=TaskKind.EVALUATE, mode=None, model=SURELY_0,
                    config={"model": LOGISTIC, "train": {"steps": 1}}, privacy=by_example(metrics=metrics),
                )
                for name in hub.stage.names
            )
        )  # fmt: skip
        assert refusals(results) == {}
        more, fewer = (results[name].metrics["accuracy"] > 0 for name in ("site-0", "site-1"))
        told.append(more and not fewer)
    return sum(told)


async def moved_by_a_patient(hub: LyingHub) -> tuple[dict[str, float] | None, str]:
    """By site how far a step has moved the weight of the patient's value, in deviations of the noise; or why it is not
    told."""
    clip = 1e-33
    given = by_example(clip=clip)
    train = {"steps": 1, "batch_size": TRAINED, "optimizer": {"name": "sgd", "lr": 1.0}}
    results = await hub.ask(
        *(
            hub.task(
                name, mode=None, model=SURELY_0, config={"model": LOGISTIC, "train": train}, privacy=given, trained=0
            )
            for name in hub.stage.names
        )
    )
    if refusals(results):
        return None, "; ".join(refusals(results).values())
    updates = {name: await hub.update(result) for name, result in results.items()}
    noise = clip * (given.privacy.noise_multiplier or 0.0) / TRAINED
    return {name: float(update[-1]) / noise for name, update in updates.items()}, ""


async def test_no_bound_next_to_zero_makes_one_example_all_of_a_metric(attacked: Attacked, tmp_path: Path) -> None:
    async with attacked(worker=site_with_or_without(tmp_path), **RULES) as hub:
        assert await told_apart_by_a_metric(hub) < TIMES


@pytest.mark.control("test_no_bound_next_to_zero_makes_one_example_all_of_a_metric")
async def test_control_a_mean_that_is_rounded_to_nothing_or_all_of_its_bound_tells_of_one_example(
    attacked: Attacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rounded(values: Any, cut: Any) -> dict[str, float]:
        return {name: float(values[name].double().clamp(0.0, cut[name]).mean()) / cut[name] for name in cut}

    monkeypatch.setattr(evaluation, "_shares", rounded)
    async with attacked(worker=site_with_or_without(tmp_path), **RULES) as hub:
        assert await told_apart_by_a_metric(hub) == TIMES


async def test_no_gradient_is_too_small_to_be_clipped(attacked: Attacked, tmp_path: Path) -> None:
    async with attacked(worker=site_with_or_without(tmp_path), **RULES) as hub:
        moved, why = await moved_by_a_patient(hub)
        assert moved is None
        assert "privacy.clip" in why


@pytest.mark.control("test_no_gradient_is_too_small_to_be_clipped")
async def test_control_a_gradient_whose_square_is_nothing_passes_a_smaller_clip(
    attacked: Attacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> int:
        return 0  # factors have their squares in double precision; all other layers have them in float32

    monkeypatch.setattr(example_gradients, "worth_factors", never)
    monkeypatch.setattr(terms, "LEAST_CLIP", 0.0)
    async with attacked(worker=site_with_or_without(tmp_path), **RULES) as hub:
        moved, why = await moved_by_a_patient(hub)
        assert moved is not None, why
        assert abs(moved["site-1"]) < 10 < 1e5 < -moved["site-0"]
