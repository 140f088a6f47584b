"""Local training and evaluation: the arithmetic, the seeds, the refusals."""

import math

import numpy as np
import pytest
import torch

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_learning.config import AdamConfig, SgdConfig, check_model, check_train
from hanse_learning.site.entries import arrays_of, entries_of, update_of
from hanse_learning.site.evaluation import evaluate
from hanse_learning.site.examples import Examples, Problem
from hanse_learning.site.models import build
from hanse_learning.site.optimizers import make_optimizer
from hanse_learning.site.training import train

LINEAR = Problem((2,), 1, "regression")
THREE = Problem((4,), 3, "classification")


def silent(_fraction, _text):
    return None


def clouds(count=60, seed=0):
    generator = np.random.default_rng(seed)
    y = generator.integers(0, 3, count)
    x = generator.normal(size=(count, 4)).astype(np.float32) + 2 * np.eye(4, dtype=np.float32)[y]
    return Examples(x.astype(np.float32), y)


def test_one_gradient_step_equals_the_hand_computation():
    module = build(check_model({"name": "linear"}), LINEAR, seed=3)
    x = np.array([[1, 2], [3, -1], [0, 1]], np.float32)
    y = np.array([1, 0, 2], np.float32)
    before = arrays_of(module)
    config = check_train({"steps": 1, "batch_size": 3, "optimizer": {"name": "sgd", "lr": 0.1}})
    train(module, Examples(x, y), config, LINEAR, 1, silent)
    residual = x @ before["output.weight"].T + before["output.bias"] - y[:, None]  # (3, 1)
    update = update_of(before, arrays_of(module), entries_of(module).travelling)
    np.testing.assert_allclose(update["output.weight"], -0.1 * 2 * (residual * x).mean(0, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(update["output.bias"], -0.1 * 2 * residual.mean(0), rtol=1e-5)


@pytest.mark.parametrize(
    ("config", "reference"),
    [
        (SgdConfig(lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1)),
        (
            SgdConfig(lr=0.1, momentum=0.9, weight_decay=0.01),
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
        ),
        (AdamConfig(name="adam", lr=0.01), lambda p: torch.optim.Adam(p, lr=0.01)),
        (
            AdamConfig(name="adam", lr=0.01, weight_decay=0.1),
            lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1),
        ),
    ],
)
def test_optimizers_give_the_same_bits_as_torch(config, reference):
    ours, theirs = (build(check_model({"name": "logistic"}), THREE, seed=1) for _ in range(2))
    apply_gradients, optimizer = make_optimizer(ours.parameters(), config), reference(theirs.parameters())
    data = clouds()
    x, y = torch.from_numpy(data.x), torch.from_numpy(data.y)
    for _ in range(20):
        for module in (ours, theirs):
            module.zero_grad()
            torch.nn.functional.cross_entropy(module(x), y).backward()
        apply_gradients()
        optimizer.step()
    for name, array in arrays_of(theirs).items():
        assert array.tobytes() == arrays_of(ours)[name].tobytes(), name


@pytest.mark.parametrize("model", [{"name": "mlp", "dropout": 0.5, "batch_norm": True}, {"name": "logistic"}])
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(model):
    def trained(seed):
        module = build(check_model(model), THREE, seed=1)
        train(module, clouds(), check_train({"epochs": 2, "batch_size": 8}), THREE, seed, silent)
        return b"".join(array.tobytes() for array in arrays_of(module).values())

    assert trained(5) == trained(5)
    assert trained(5) != trained(6)


def test_training_learns_and_evaluation_counts_what_is_right():
    module = build(check_model({"name": "mlp", "hidden": [16]}), THREE, seed=1)
    before = evaluate(module, clouds(seed=9), THREE)
    seen = []
    train(module, clouds(300), check_train({"epochs": 10}), THREE, 1, lambda fraction, _text: seen.append(fraction))
    after = evaluate(module, clouds(seed=9), THREE)
    assert after["loss"] < before["loss"]
    assert after["accuracy"] > 0.8
    assert abs(before["matthews"]) < after["matthews"] <= 1
    assert seen[-1] == 1.0
    assert seen == sorted(seen)


def test_means_of_cut_values_have_no_example_beyond_its_bound():
    module = build(check_model({"name": "mlp", "hidden": [16]}), THREE, seed=1)
    data = clouds(seed=9)
    whole = evaluate(module, data, THREE)
    shares = evaluate(module, data, THREE, cut={"loss": 1e6, "accuracy": 1.0, "mse": 1.0})
    assert shares == {"loss": pytest.approx(whole["loss"] / 1e6), "accuracy": pytest.approx(whole["accuracy"])}
    assert evaluate(module, data, THREE, cut={"accuracy": 5e-324}) == {"accuracy": pytest.approx(whole["accuracy"])}
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(math.nan)
    assert evaluate(module, data, THREE, cut={"loss": 2.5}) == {"loss": 1.0}


def test_a_model_that_always_says_the_same_has_accuracy_and_no_correlation():
    module = build(check_model({"name": "logistic", "outputs": 1}), Problem((4,), 1, "classification"))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(0.0)
        module.get_parameter("output.bias").fill_(5.0)
    data = clouds()
    metrics = evaluate(module, Examples(data.x, (data.y > 0).astype(np.int64)), Problem((4,), 1, "classification"))
    assert metrics["accuracy"] > 0.5
    assert metrics["matthews"] == 0.0


def test_regression_reports_mse_and_r2():
    module = build(check_model({"name": "linear"}), LINEAR, seed=3)
    x = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
    data = Examples(x, (x @ np.array([1, 2], np.float32)).astype(np.float32))
    train(module, data, check_train({"epochs": 30, "optimizer": {"lr": 0.1}}), LINEAR, 1, silent)
    metrics = evaluate(module, data, LINEAR)
    assert metrics["r2"] > 0.99
    assert metrics["mse"] == metrics["loss"]


def test_a_diverging_loss_is_refused_with_the_learning_rate():
    module = build(check_model({"name": "linear"}), LINEAR, seed=3)
    data = Examples(np.full((10, 2), 1e4, np.float32), np.zeros(10, np.float32))
    with pytest.raises(HanseError, match=r"diverged.*lower train\.optimizer\.lr \(now 100") as caught:
        train(module, data, check_train({"epochs": 50, "optimizer": {"lr": 100}}), LINEAR, 1, silent)
    assert caught.value.code is ErrorCode.TRAINING_FAILED


def test_a_label_outside_the_classes_is_refused():
    module = build(check_model({"name": "logistic"}), THREE)
    with pytest.raises(HanseError, match="labels: 0 to 2 were expected") as caught:
        evaluate(module, Examples(np.zeros((2, 4), np.float32), np.array([7, 7])), THREE)
    assert caught.value.found == "7 to 7"


def test_batch_norm_survives_a_last_batch_of_one():
    module = build(check_model({"name": "mlp", "batch_norm": True}), THREE)
    metrics = train(module, clouds(17), check_train({"epochs": 1, "batch_size": 8}), THREE, 1, silent)
    assert metrics["steps"] == 2
