"""A hub that asks for metrics whose noise hides one example (`privacy.metrics` with `dp_sgd`), of a model that the site
has made with its training data: then one training example moves the metric of every test example. Or of a site that
evaluates by a pipeline of its own, whose means nobody has cut by example: then one test example moves the mean.

One patient alone has a value that draws the model away from what fits all test examples.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adversary import workers
from adversary.conftest import Attacked
from adversary.lying_hub import LyingHub, refusals
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.pipeline.worker import PipelineWorker
from hanse_datapod.worker.work import built_in, execute, site_state
from hanse_fabric.messages import PrivacyTerms, TaskKind
from hanse_fabric.messages.privacy import Privacy, PrivateMetrics
from hanse_schemas.schema import ArraySchema

EPSILON, TESTED = 0.1, 20_000
RULES = {
    "sites": 2, "masking": {"required": False}, "minimum_participants": 1,
    "privacy": {"required": True, "epsilon": 100.0}, "schema": ArraySchema(shape=(1,), task="regression"),
}  # fmt: skip
METRICS = PrivateMetrics(epsilon=EPSILON, bounds={"mse": 1.0})
BY_EXAMPLE = PrivacyTerms(
    privacy=Privacy(placement="local", mechanism="dp_sgd", noise_multiplier=10.0, metrics=METRICS),
    rounds=1, round=1, active=2,
)  # fmt: skip
WHOLE = PrivacyTerms(
    privacy=Privacy(placement="local", mechanism="gaussian", noise_multiplier=10.0), rounds=1, round=1, active=2
)
NOTHING = {"output.weight": np.zeros((1, 1)), "output.bias": np.zeros(1)}
LINEAR = {"name": "linear"}


def site_with_or_without(folder: Path) -> Any:
    """A worker with the true trainer, by its number: site 0 has the patient, site 1 has somebody like all others."""

    def worker(index: int) -> Any:
        train, test = folder / f"train-{index}.npz", folder / f"test-{index}.npz"
        values = np.zeros(40)
        values[0] = 0.0 if index else 1000.0
        np.savez(train, x=np.ones((40, 1)), y=values)
        np.savez(test, x=np.ones((TESTED, 1)), y=np.zeros(TESTED))
        return workers.on(DataSettings(train=train, test=test))

    return worker


def evaluation(hub: LyingHub, site: str, train: dict[str, Any], model: dict[str, Any], **how: Any) -> Any:
    config = {"model": model, "train": train}
    return hub.task(
        site, "r1-evaluate", kind=TaskKind.EVALUATE, mode=None, model=how.pop("given", NOTHING), config=config,
        privacy=BY_EXAMPLE, **how,
    )  # fmt: skip


async def told_of_adapted(hub: LyingHub) -> tuple[dict[str, float] | None, str]:
    """By site the metric of the model that it has adapted; or why there is none."""
    train = {"steps": 1, "batch_size": 40, "algorithm": {"name": "per_fedavg", "alpha": 1.0}}
    results = await hub.ask(*(evaluation(hub, name, train, LINEAR) for name in hub.stage.names))
    if refusals(results):
        return None, "; ".join(refusals(results).values())
    return {name: result.metrics["mse"] for name, result in results.items()}, ""


async def test_noise_that_hides_one_example_is_added_to_no_metric_of_an_adapted_model(
    attacked: Attacked, tmp_path: Path
) -> None:
    async with attacked(worker=site_with_or_without(tmp_path), **RULES) as hub:
        told, _ = await told_of_adapted(hub)
        assert told is None


@pytest.mark.control("test_noise_that_hides_one_example_is_added_to_no_metric_of_an_adapted_model")
async def test_control_metrics_of_a_model_that_is_adapted_tell_whether_one_patient_is_there(
    attacked: Attacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(built_in, "cut_of", lambda work: work.config["privacy"]["cut"])
    async with attacked(worker=site_with_or_without(tmp_path), **RULES) as hub:
        told, why = await told_of_adapted(hub)
        assert told is not None, why
        assert told["site-1"] < 0.3 < 0.7 < told["site-0"]


async def told_of_kept(hub: LyingHub) -> dict[str, float]:
    """By site the metric of a model of which a layer stays at the site, after training that hides the site as a
    whole."""
    head = LINEAR | {"state": [{"match": "output.bias", "keep": "local"}]}
    train = {"steps": 1, "batch_size": 40, "optimizer": {"name": "sgd", "lr": 0.5}}
    given = {"output.weight": np.zeros((1, 1))}
    trained = await hub.ask(
        *(
            hub.task(
                name, "r1-train", mode=None, model=given, config={"model": head, "train": train}, privacy=WHOLE,
                trained=0, seed=1,
            )
            for name in hub.stage.names
        )
    )  # fmt: skip
    assert refusals(trained) == {}
    results = await hub.ask(
        *(evaluation(hub, name, train, head, given=given, trained=1, seed=1) for name in hub.stage.names)
    )
    assert refusals(results) == {}
    return {name: result.metrics["mse"] for name, result in results.items()}


async def test_what_was_kept_without_noise_is_in_no_metric_whose_noise_hides_one_example(
    attacked: Attacked, tmp_path: Path
) -> None:
    async with attacked(worker=site_with_or_without(tmp_path), **RULES) as hub:
        told = await told_of_kept(hub)
        assert abs(told["site-0"] - told["site-1"]) < 0.1, told


@pytest.mark.control("test_what_was_kept_without_noise_is_in_no_metric_whose_noise_hides_one_example")
async def test_control_metrics_of_what_other_training_has_kept_tell_whether_one_patient_is_there(
    attacked: Attacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_state, "PRIVATE", site_state.LOCAL)
    async with attacked(worker=site_with_or_without(tmp_path), **RULES) as hub:
        told = await told_of_kept(hub)
        assert told["site-1"] < 0.3 < 0.7 < told["site-0"]


@contextmanager
def pipelines() -> Iterator[Callable[[int], PipelineWorker]]:
    """Makes sites with loops of their own, which tell the mean of squared errors over all their test examples."""
    running: list[tuple[PipelineWorker, threading.Thread]] = []

    def worker(index: int) -> PipelineWorker:
        made = PipelineWorker((), 40)
        errors = np.zeros(TESTED)
        errors[0] = 0.0 if index else 1000.0**2

        def loop() -> None:
            while (task := made.next_task()) is not None:
                task.report(TESTED, {"mse": float(errors.mean())})

        thread = threading.Thread(target=loop)
        thread.start()
        running.append((made, thread))
        return made

    try:
        yield worker
    finally:
        for made, thread in running:
            made.end()
            thread.join(20)


async def told_by_pipelines(attacked: Attacked) -> tuple[dict[str, float] | None, str]:
    with pipelines() as worker:
        async with attacked(worker=worker, **RULES) as hub:
            results = await hub.ask(*(evaluation(hub, name, {"steps": 1}, LINEAR) for name in hub.stage.names))
    if refusals(results):
        return None, "; ".join(refusals(results).values())
    return {name: result.metrics["mse"] for name, result in results.items()}, ""


async def test_noise_that_hides_one_example_is_added_to_no_metric_of_a_sites_own_pipeline(attacked: Attacked) -> None:
    told, why = await told_by_pipelines(attacked)
    assert (told, why != "") == (None, True)


@pytest.mark.control("test_noise_that_hides_one_example_is_added_to_no_metric_of_a_sites_own_pipeline")
async def test_control_a_mean_of_which_no_example_is_cut_tells_whether_one_patient_is_there(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execute, "cut_of", lambda *_, **__: None)
    told, why = await told_by_pipelines(attacked)
    assert told is not None, why
    assert told["site-1"] < 0.3 < 0.7 < told["site-0"]
