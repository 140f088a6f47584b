"""DP-SGD: the arithmetic by hand, the sampling, the noise, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hanse_fabric.errors import HanseError
from hanse_learning.config import check_model, check_train
from hanse_learning.site import dp_sgd
from hanse_learning.site.clipping import clipped_sum
from hanse_learning.site.dp_sgd import poisson_sample, train_privately
from hanse_learning.site.entries import arrays_of
from hanse_learning.site.example_gradients import numbers_of_example
from hanse_learning.site.examples import Examples, Problem
from hanse_learning.site.models import build
from hanse_learning.site.site_privacy import DpSgd
from known_noise import source

LINEAR = Problem((2,), 1, "regression")
THREE = Problem((4,), 3, "classification")
PICTURES = Problem((8, 8), 3, "classification")
ONE_STEP = check_train({"optimizer": {"name": "sgd", "lr": 0.1}})


def silent(_fraction: float, _text: str) -> None:
    return None


def clouds(count: int = 60) -> Examples:
    generator = np.random.default_rng(0)
    y = generator.integers(0, 3, count)
    x = generator.normal(size=(count, 4)) + 2 * np.eye(4)[y]
    return Examples(x.astype(np.float32), y)


def change(module: nn.Module, data: Examples, private: DpSgd, problem: Problem = LINEAR, seed: int = 0) -> np.ndarray:
    before = arrays_of(module)
    train_privately(module, data, ONE_STEP, problem, private, silent, source=source(seed))
    after = arrays_of(module)
    return np.concatenate([(after[name] - before[name]).reshape(-1) for name in before])


def test_one_step_equals_the_hand_computation() -> None:
    """Each gradient clipped over weights and bias together; divided by the expected, not the actual, batch."""
    module = build(check_model({"name": "linear"}), LINEAR, seed=3)
    x = np.array([[1, 2], [3, -1], [0, 1]], np.float32)
    y = np.array([1, 0, 2], np.float32)
    before = arrays_of(module)
    residual = x @ before["output.weight"].T + before["output.bias"] - y[:, None]  # (3, 1)
    gradients = 2 * residual * np.concatenate([x, np.ones((3, 1))], axis=1)  # (3, 3): weights, bias
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    assert norms.min() < 10 < norms.max()
    expected = -0.1 * (gradients / np.maximum(1, norms / 10)).sum(axis=0) / 5
    moved = change(module, Examples(x, y), DpSgd(clip=10, scale=1e-6, rate=1.0, batch=5, steps=1))
    np.testing.assert_allclose(moved, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("per", ["model", "layer"])
@pytest.mark.parametrize("rule", ["flat", "automatic"])
def test_no_example_moves_the_sum_by_more_than_the_clip(per: str, rule: str) -> None:
    how = check_train({"clipping": {"per": per, "rule": rule}}).clipping
    gradients = {
        "a.weight": torch.randn(50, 3, 4) * 100,
        "a.bias": torch.randn(50, 7),
        "b": torch.randn(50, 3000) * 1e-3,
    }
    gradients["a.weight"][7, 0, 0] = math.inf
    gradients["b"][9, 0] = math.nan
    gradients["b"][11, 0] = 2.0**62
    for index in range(50):
        one = clipped_sum({name: part[index : index + 1] for name, part in gradients.items()}, 0.5, how)
        assert np.linalg.norm(one) <= 0.5
        assert (index in (7, 9, 11)) == (not one.any())


def test_layers_have_equal_shares_of_the_clip_and_automatic_clipping_scales_up_too() -> None:
    gradients = {"a.weight": torch.tensor([[3.0]]), "a.bias": torch.tensor([[4.0]]), "b.weight": torch.tensor([[0.1]])}
    by_layer = check_train({"clipping": {"per": "layer"}}).clipping
    made = clipped_sum(gradients, math.sqrt(2), by_layer)
    np.testing.assert_allclose(made, [0.6, 0.8, 0.1], rtol=1e-5)
    automatic = check_train({"clipping": {"rule": "automatic", "gamma": 0.1}}).clipping
    tiny = {"a.weight": torch.tensor([[0.3, 0.4]])}
    np.testing.assert_allclose(clipped_sum(tiny, 2.0, automatic), [1.0, 4 / 3], rtol=1e-5)
    assert not clipped_sum({"a.weight": torch.zeros(2, 2)}, 0.0).any()


def test_batches_beyond_the_memory_are_worked_on_in_parts_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    private = DpSgd(clip=1.0, scale=0.5, rate=0.5, batch=30, steps=3)
    whole = change(build(check_model({"name": "mlp"}), THREE, seed=1), clouds(), private, THREE)
    numbers = numbers_of_example(build(check_model({"name": "mlp"}), THREE), torch.zeros(1, 4))
    monkeypatch.setattr(dp_sgd, "memory_of", lambda _device: 4 * 16 * 5 * numbers)  # for five at once
    parts = change(build(check_model({"name": "mlp"}), THREE, seed=1), clouds(), private, THREE)
    np.testing.assert_allclose(whole, parts, atol=1e-5)


def test_the_sample_is_poisson() -> None:
    stream = source(1)
    sizes = np.array([len(poisson_sample(1000, 0.1, stream)) for _ in range(2000)])
    assert sizes.mean() == pytest.approx(100, abs=1.5)
    assert sizes.var() == pytest.approx(90, rel=0.15)
    assert len(poisson_sample(1000, 1.0, stream)) == 1000


def test_an_empty_batch_takes_a_step_of_noise_of_the_right_size() -> None:
    module = build(check_model({"name": "mlp", "hidden": [2000]}), THREE, seed=1)
    private = DpSgd(clip=1.0, scale=2.0, rate=1e-9, batch=4, steps=1)
    moved = change(module, clouds(), private, THREE)
    assert moved.std() == pytest.approx(0.1 * 2.0 / 4, rel=0.03)
    assert abs(moved.mean()) < 0.002


def test_noise_is_fresh_each_time_although_the_jobs_seed_is_the_same() -> None:
    private = DpSgd(clip=1.0, scale=1.0, rate=0.5, batch=30, steps=2)
    first, second = (build(check_model({"name": "logistic"}), THREE, seed=1) for _ in range(2))
    for module in (first, second):
        train_privately(module, clouds(), ONE_STEP, THREE, private, silent)
    assert not np.array_equal(arrays_of(first)["output.weight"], arrays_of(second)["output.weight"])


def test_dp_sgd_tells_no_loss() -> None:
    said: list[str] = []
    private = DpSgd(clip=1.0, scale=1.0, rate=0.5, batch=30, steps=2)
    module = build(check_model({"name": "logistic"}), THREE, seed=1)
    metrics = train_privately(module, clouds(), ONE_STEP, THREE, private, lambda _done, text: said.append(text))
    assert metrics == {"steps": 2.0}
    assert said
    assert "loss" not in "".join(said)


def test_dp_sgd_learns_where_the_noise_is_small() -> None:
    module = build(check_model({"name": "logistic"}), THREE, seed=1)
    data = clouds(300)
    private = DpSgd(clip=1.0, scale=1.0, rate=0.2, batch=60, steps=60)
    config = check_train({"optimizer": {"name": "sgd", "lr": 1.0}})
    train_privately(module, data, config, THREE, private, silent, source=source(2))
    module.eval()
    with torch.no_grad():
        right = module(torch.from_numpy(data.x)).argmax(dim=1).numpy() == data.y
    assert right.mean() > 0.85


def test_batch_norm_is_refused() -> None:
    module = build(check_model({"name": "mlp", "batch_norm": True}), THREE, seed=1)
    with pytest.raises(HanseError, match=r"norm0.*BatchNorm1d"):
        train_privately(module, clouds(), ONE_STEP, THREE, DpSgd(1.0, 1.0, 0.5, 30, 1), silent)


def test_parameters_that_are_not_finite_are_refused() -> None:
    module = build(check_model({"name": "logistic"}), THREE, seed=1)
    config = check_train({"optimizer": {"name": "sgd", "lr": 1e6, "momentum": 0.99}})
    with pytest.raises(HanseError, match="diverged"):
        train_privately(module, clouds(), config, THREE, DpSgd(1e38, 1e36, 0.5, 30, 2), silent, source=source())


def test_an_examples_gradient_is_the_mean_over_its_copies_and_is_clipped_then() -> None:
    """A picture and its mirror image, of which the gradient of a linear model is the mean's."""
    problem = Problem((2, 2), 1, "regression")
    x, y = np.array([[[1, 3], [0, 2]]], np.float32), np.array([1], np.float32)
    config = check_train({"optimizer": {"lr": 0.1}, "augmentation": {"flip": 1, "copies": 2}})
    module = build(check_model({"name": "linear"}), problem, seed=3)
    before = arrays_of(module)
    flat = np.concatenate([x.reshape(1, -1), x[:, :, ::-1].reshape(1, -1)])  # (2, 4)
    residual = flat @ before["output.weight"].T + before["output.bias"] - 1
    gradient = (2 * residual * np.concatenate([flat, np.ones((2, 1))], axis=1)).mean(axis=0)
    clip = float(np.linalg.norm(gradient)) / 2
    private = DpSgd(clip=clip, scale=1e-6, rate=1.0, batch=1, steps=1)
    train_privately(module, Examples(x, y), config, problem, private, silent, source=source())
    after = arrays_of(module)
    moved = np.concatenate([(after[name] - before[name]).reshape(-1) for name in before])
    np.testing.assert_allclose(moved, -0.1 * gradient / 2, rtol=1e-3, atol=1e-6)


def test_the_answer_may_be_the_moving_average_of_the_weights() -> None:
    private = DpSgd(clip=1.0, scale=0.5, rate=0.5, batch=30, steps=2)

    def trained(**train: float) -> dict[str, np.ndarray]:
        module = build(check_model({"name": "logistic"}), THREE, seed=1)
        config = check_train({"optimizer": {"lr": 0.1}, **train})
        train_privately(module, clouds(), config, THREE, private, silent, source=source())
        return arrays_of(module)

    start = arrays_of(build(check_model({"name": "logistic"}), THREE, seed=1))["output.weight"]
    first = DpSgd(clip=1.0, scale=0.5, rate=0.5, batch=30, steps=1)
    module = build(check_model({"name": "logistic"}), THREE, seed=1)
    train_privately(module, clouds(), check_train({"optimizer": {"lr": 0.1}}), THREE, first, silent, source=source())
    once, twice = arrays_of(module)["output.weight"], trained()["output.weight"]
    average = start * (2 / 11) + once * (9 / 11)
    average = average * (3 / 12) + twice * (9 / 12)
    np.testing.assert_allclose(trained(weights_average=0.99)["output.weight"], average, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("schedule", "ratio"),
    [
        ({"name": "milestones", "at": [1], "factor": 0.5}, 0.5),
        ({"name": "cosine", "length": 4, "floor": 0.2}, 0.882843),
        ({"name": "polynomial", "length": 4, "power": 2, "floor": 0.2}, 0.65),
        ({"name": "polynomial", "length": 5, "warm_up": 3, "floor": 0.5}, 2),
    ],
)
def test_private_training_follows_its_schedule(schedule: dict[str, Any], ratio: float) -> None:
    """The second round's step beside the first's, of the same model and noise."""
    moved = [privately(schedule, steps=1, round_number=number) for number in (1, 2)]
    np.testing.assert_allclose(moved[1], moved[0] * ratio, rtol=1e-4, atol=1e-7)


def test_a_private_schedule_may_count_steps() -> None:
    in_steps = {"name": "milestones", "at": [1], "unit": "steps", "factor": 0.5}
    first, plain, scheduled = privately(None, steps=1), privately(None, steps=2), privately(in_steps, steps=2)
    np.testing.assert_allclose(scheduled - first, (plain - first) / 2, rtol=1e-4, atol=1e-7)


def privately(schedule: dict[str, Any] | None, *, steps: int, round_number: int = 1) -> np.ndarray:
    """How far private steps move a model's weights."""
    private = DpSgd(clip=1.0, scale=0.5, rate=0.5, batch=30, steps=steps)
    module = build(check_model({"name": "logistic"}), THREE, seed=1)
    config = check_train({"optimizer": {"lr": 0.1}} | ({"schedule": schedule} if schedule else {}))
    before = arrays_of(module)["output.weight"]
    train_privately(module, clouds(), config, THREE, private, silent, round_number=round_number, source=source())
    return arrays_of(module)["output.weight"] - before
