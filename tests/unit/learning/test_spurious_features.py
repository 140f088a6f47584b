"""Rotations and colours that tell the class in training and mislead in testing."""

from __future__ import annotations

import numpy as np
import pytest

from hanse_fabric.errors import HanseError
from hanse_learning.spurious import DEGREES, PALETTE, coloured, rotate, rotated

IMAGES = np.random.default_rng(0).random((20, 9, 9), dtype=np.float32)
LABELS = np.arange(20) % 10


def test_a_quarter_turn_moves_each_pixel_to_its_place() -> None:
    assert np.allclose(rotate(IMAGES, 90), np.rot90(IMAGES, axes=(1, 2)), atol=1e-6)
    assert np.allclose(rotate(IMAGES, 0), IMAGES)
    assert np.allclose(rotate(rotate(IMAGES, 90), -90), IMAGES, atol=1e-6)


def test_each_class_is_turned_by_its_own_angle() -> None:
    turned = rotated(IMAGES, LABELS)
    for index, label in enumerate(LABELS):
        assert np.allclose(turned[index], rotate(IMAGES[index : index + 1], DEGREES[label])[0])


def test_colours_follow_the_class_in_training_and_another_class_in_testing() -> None:
    train, test = coloured(IMAGES, LABELS), coloured(IMAGES, LABELS, shift=3)
    assert train.shape == (20, 3, 9, 9)
    assert np.allclose(train[4], IMAGES[4] * PALETTE[4][:, None, None])
    assert np.allclose(test[4], IMAGES[4] * PALETTE[7][:, None, None])
    assert len({tuple(colour) for colour in PALETTE}) == 10


def test_images_of_another_shape_are_refused() -> None:
    with pytest.raises(HanseError, match="images"):
        rotated(IMAGES[0], LABELS)
