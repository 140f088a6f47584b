"""People with many examples: sampled together, clipped together, and hidden with all of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from hanse_fabric.errors import HanseError
from hanse_learning.config import check_model, check_train
from hanse_learning.site.dp_sgd import train_privately
from hanse_learning.site.entries import arrays_of
from hanse_learning.site.examples import Examples, Problem
from hanse_learning.site.models import build
from hanse_learning.site.site_privacy import DpSgd
from hanse_learning.site.units import Units
from hanse_privacy.accounting.calibration import noise_for
from hanse_privacy.attacks.membership import infer_by_loss
from known_noise import source

LINEAR = Problem((2,), 1, "regression")
CLASSES = Problem((60,), 2, "classification")
PEOPLE, ROWS, EPSILON = 40, 40, 2.0


def silent(_fraction: float, _text: str) -> None:
    return None


def test_a_step_sums_the_clipped_means_of_each_persons_gradients() -> None:
    module = build(check_model({"name": "linear"}), LINEAR, seed=3)
    x = np.array([[1, 2], [3, -1], [0, 1], [4, 4]], np.float32)
    y = np.array([1, 0, 2, -3], np.float32)
    whose = np.array([1, 0, 1, 1])
    before = arrays_of(module)
    residual = x @ before["output.weight"].T + before["output.bias"] - y[:, None]
    gradients = 2 * residual * np.concatenate([x, np.ones((4, 1))], axis=1)
    means = np.stack([gradients[whose == unit].mean(axis=0) for unit in (0, 1)])
    norms = np.linalg.norm(means, axis=1, keepdims=True)
    assert norms.min() < 14 < norms.max()
    expected = -0.1 * (means / np.maximum(1, norms / 14)).sum(axis=0) / 5
    config = check_train({"optimizer": {"name": "sgd", "lr": 0.1}})
    private = DpSgd(clip=14, scale=1e-6, rate=1.0, batch=5, steps=1, by_unit=True)
    train_privately(module, Examples(x, y, whose), config, LINEAR, private, silent, source=source())
    moved = np.concatenate([(arrays_of(module)[name] - before[name]).reshape(-1) for name in before])
    np.testing.assert_allclose(moved, expected, rtol=1e-4, atol=1e-6)


def test_a_chosen_person_comes_with_all_examples_and_nobody_else_with_any() -> None:
    whose = np.array([2, 0, 2, 1, 0, 2, 3])
    units = Units(Examples(np.zeros((7, 1), np.float32), np.zeros(7), whose), 512)
    assert len(units) == 4
    batches = list(units.batches(np.array([0, 2, 3]), 100, source()))
    assert sorted(sorted(rows.tolist()) for rows, _ in batches) == [[0, 2, 5], [1, 4], [6]]
    assert [len(rows) % each for rows, each in batches] == [0, 0, 0]


def test_of_a_person_with_very_many_examples_a_step_uses_some_at_random() -> None:
    whose = np.array([0] * 30 + [1] * 3)
    units = Units(Examples(np.zeros((33, 1), np.float32), np.zeros(33), whose), 10)
    drawn = source()
    first, second = (
        next(rows for rows, each in units.batches(np.arange(2), 100, drawn) if each == 10) for _ in range(2)
    )
    assert len(set(first)) == len(set(second)) == 10
    assert set(whose[first]) == {0}
    assert set(first) != set(second)


@pytest.mark.parametrize("whose", [None, np.zeros(4, np.int64)])
def test_data_that_were_read_with_another_unit_than_was_charged_for_are_not_trained_on(
    whose: np.ndarray | None,
) -> None:
    data = Examples(np.zeros((4, 2), np.float32), np.zeros(4, np.float32), whose)
    private = DpSgd(clip=1, scale=1, rate=1.0, batch=5, steps=1, by_unit=whose is None)
    module = build(check_model({"name": "linear"}), LINEAR, seed=3)
    with pytest.raises(HanseError, match="another unit than was charged for"):
        train_privately(module, data, check_train({}), LINEAR, private, silent)


def people(generator: np.random.Generator) -> tuple[Examples, np.ndarray]:
    """Rows of people who look alike in all their rows, with a label that follows nothing."""
    faces = generator.normal(size=(PEOPLE, 60))
    whose = np.repeat(np.arange(PEOPLE), ROWS)
    x = faces[whose] + 0.1 * generator.normal(size=(PEOPLE * ROWS, 60))
    return Examples(x.astype(np.float32), generator.integers(0, 2, PEOPLE)[whose], whose), whose


def losses_of_people(module: nn.Module, data: Examples, whose: np.ndarray) -> np.ndarray:
    module.eval()
    with torch.no_grad():
        outputs = module(torch.from_numpy(data.x))
        losses = nn.functional.cross_entropy(outputs, torch.from_numpy(data.y), reduction="none").double().numpy()
    return np.bincount(whose, losses) / ROWS


def inferred(*, by_person: bool) -> tuple[float, float]:
    """(AUC, advantage) of telling who was trained on, by the mean loss of a person's rows."""
    generator = np.random.default_rng(3)
    (members, whose), (others, _) = people(generator), people(generator)
    config = check_train({"optimizer": {"name": "sgd", "lr": 1.0}})
    module = build(check_model({"name": "mlp"}), CLASSES, seed=1)
    noise = noise_for("gaussian", EPSILON, 1e-3, 60, rate=0.2)
    count = PEOPLE if by_person else PEOPLE * ROWS
    private = DpSgd(clip=1.0, scale=noise, rate=0.2, batch=count // 5, steps=60, by_unit=by_person)
    data = members if by_person else Examples(members.x, members.y)
    train_privately(module, data, config, CLASSES, private, silent, source=source())
    found = infer_by_loss(losses_of_people(module, members, whose), losses_of_people(module, others, whose))
    return found.auc, found.advantage


def test_control_people_with_many_rows_are_found_out_where_each_row_is_hidden_for_itself() -> None:
    auc, advantage = inferred(by_person=False)
    assert auc > 0.9
    assert advantage > math.tanh(EPSILON / 2)  # more than epsilon allows for whom it is promised to


def test_people_with_many_rows_are_hidden_where_their_rows_are_clipped_and_sampled_together() -> None:
    auc, advantage = inferred(by_person=True)
    assert auc < 0.65
    assert advantage < math.tanh(EPSILON / 2) / 2
