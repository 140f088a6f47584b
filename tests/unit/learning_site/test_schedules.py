"""How rates rise and fall, what images are changed by, and what of both is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hanse_fabric.errors import HanseError
from hanse_learning.config import AugmentationConfig, check_learning, check_train
from hanse_learning.site.augmentation import augment, copies_of
from hanse_learning.site.schedule import rate_factor
from hanse_schemas.job import check_job


def rates(schedule: dict[str, Any], rounds: int, steps: int = 1) -> list[float]:
    config = check_train({"schedule": schedule}).schedule
    return [
        round(rate_factor(config, number, step), 6) for number in range(1, rounds + 1) for step in range(1, steps + 1)
    ]


def test_a_rate_falls_at_its_milestones() -> None:
    assert rates({"name": "milestones", "at": [2, 3], "factor": 0.5}, 5) == [1, 1, 0.5, 0.25, 0.25]


def test_a_rate_falls_as_a_cosine_or_a_power_to_its_floor_and_stays_there() -> None:
    assert rates({"name": "cosine", "length": 4, "floor": 0.2}, 6) == [1, 0.882843, 0.6, 0.317157, 0.2, 0.2]
    assert rates({"name": "polynomial", "length": 4, "power": 2, "floor": 0.2}, 5) == [1, 0.65, 0.4, 0.25, 0.2]


def test_a_rate_rises_in_equal_parts_before_it_falls() -> None:
    assert rates({"name": "polynomial", "length": 5, "warm_up": 3, "floor": 0.5}, 6) == [0.25, 0.5, 0.75, 1, 0.75, 0.5]
    assert rates({"factor": 0.5, "every_rounds": 2, "warm_up": 1}, 3) == [0.5, 1, 0.5]


def test_steps_are_counted_within_each_round() -> None:
    assert rates({"name": "milestones", "at": [1], "unit": "steps"}, 2, steps=2) == [1, 0.1, 1, 0.1]
    assert rates({"factor": 0.5, "every_steps": 1}, 2, steps=2) == [1, 0.5, 1, 0.5]


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ({"name": "milestones", "at": [3, 3]}, "numbers that rise"),
        ({"name": "milestones", "at": []}, "at"),
        ({"name": "cosine", "length": 3, "warm_up": 3}, "fewer than the length 3"),
        ({"name": "cosine", "length": 3, "floor": 0}, "floor"),
        ({"name": "polynomial", "length": 3, "power": 0}, "power"),
        ({"name": "sine", "length": 3}, "sine"),
        ({"name": "milestones", "at": [2, 10]}, "train.schedule.at: 10 is not at most 9, for the job has 10 rounds"),
        ({"name": "cosine", "length": 11}, "train.schedule.length: 11 is not at most 10"),
        ({"factor": 0.5, "every_rounds": 1, "warm_up": 10}, "train.schedule.warm_up: 10"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_with_the_reason(schedule: dict[str, Any], said: str) -> None:
    body = {"rounds": 10, "model": {"name": "mlp"}, "train": {"schedule": schedule}}
    with pytest.raises(HanseError) as caught:
        check_learning(check_job(body))
    assert said in caught.value.message


def test_a_schedule_that_ends_with_the_job_or_counts_steps_is_taken() -> None:
    for schedule in ({"name": "cosine", "length": 10}, {"name": "cosine", "length": 1000, "unit": "steps"}):
        check_learning(check_job({"rounds": 10, "model": {"name": "mlp"}, "train": {"schedule": schedule}}))


X = torch.arange(2.0 * 2 * 6 * 6).reshape(2, 2, 6, 6) + 1


def changed(how: dict[str, Any], x: torch.Tensor = X, seed: int = 0) -> torch.Tensor:
    return augment(x, AugmentationConfig.model_validate(how), torch.Generator().manual_seed(seed))


def test_a_flip_exchanges_left_and_right_as_often_as_it_says() -> None:
    assert torch.equal(changed({"flip": 1}), X.flip(3))
    turned = changed({"flip": 0.3}, X[:1].expand(500, -1, -1, -1))
    assert 0.2 < (turned[:, 0, 0, 0] != X[0, 0, 0, 0]).float().mean() < 0.4


def test_a_crop_is_a_part_of_the_padded_image() -> None:
    made = changed({"crop": 2}, X[:1, :1].expand(50, -1, -1, -1))
    padded = torch.nn.functional.pad(X[0, 0], (2, 2, 2, 2))
    parts = {padded[row : row + 6, column : column + 6].numpy().tobytes() for row in range(5) for column in range(5)}
    found = {one.contiguous().numpy().tobytes() for one in made[:, 0]}
    assert found <= parts
    assert len(found) > 5


def test_cutout_sets_one_square_to_zero_and_color_scales() -> None:
    assert (changed({"cutout": 3})[:, 0] == 0).sum(dim=(1, 2)).tolist() == [9, 9]
    made = changed({"color": 0.5})
    assert not torch.equal(made, X)
    assert torch.equal(made, changed({"color": 0.5}))
    assert not torch.equal(made, changed({"color": 0.5}, seed=1))


def test_grey_images_keep_their_shape() -> None:
    assert changed({"crop": 1, "flip": 0.5, "color": 0.1, "cutout": 2}, X[:, 0]).shape == (2, 6, 6)


def test_the_first_of_several_copies_is_the_example_itself() -> None:
    how = AugmentationConfig(flip=1, copies=3)
    made = copies_of(X, how, torch.Generator())
    assert torch.equal(made, torch.stack([X[0], X[0].flip(2), X[0].flip(2), X[1], X[1].flip(2), X[1].flip(2)]))


@pytest.mark.parametrize(
    ("how", "x", "said"),
    [({"flip": 1}, X[:, 0, 0], "images, of shape"), ({"cutout": 7}, X, "train.augmentation.cutout: 7")],
)
def test_what_cannot_be_augmented_is_refused(how: dict[str, Any], x: torch.Tensor, said: str) -> None:
    with pytest.raises(HanseError, match=said):
        changed(how, x)


def test_augmentation_of_what_is_no_image_is_refused_when_the_job_is_submitted() -> None:
    body = {"rounds": 1, "model": {"name": "mlp"}, "train": {"augmentation": {"flip": 0.5}}}
    with pytest.raises(HanseError, match=r"train\.augmentation: 'mlp'|train\.augmentation: mlp"):
        check_learning(check_job(body))
    with pytest.raises(HanseError, match="give crop, flip, color or cutout"):
        check_train({"augmentation": {"copies": 2}})
