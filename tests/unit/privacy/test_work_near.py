"""Answers that are all but the same are found by 64 numbers of each."""

import numpy as np
import pytest

from hanse_fabric.tensors.file import layout_like, write_tensors
from hanse_privacy.works.near import NUMBERS, nearest, sine, sketch

SECRET = b"s" * 32
DRAW = np.random.default_rng(3)
UPDATE = DRAW.normal(size=5000).astype(np.float32)


@pytest.fixture
def sketched(tmp_path):
    def of(update, secret=SECRET):
        path = tmp_path / "update"
        arrays = {"weight": update.astype(np.float32)}
        write_tensors(path, layout_like(arrays), arrays)
        return sketch(path, secret)

    return of


def test_an_answer_of_a_model_moved_by_its_last_bit_is_near(sketched):
    moved = UPDATE * np.float32(1 + 1e-6)
    moved[7] = np.nextafter(moved[7], np.float32(1))
    assert nearest(sketched(moved), [sketched(DRAW.normal(size=5000)), sketched(UPDATE)], 0.02) == 1


@pytest.mark.parametrize("angle", [0.005, 0.01, 0.05, 0.2])
def test_the_angle_of_sketches_is_the_one_of_answers_give_or_take_a_third(sketched, angle):
    across = DRAW.normal(size=5000)
    across -= UPDATE * (across @ UPDATE) / (UPDATE @ UPDATE)
    turned = UPDATE * np.cos(angle) + across * np.sin(angle) * np.linalg.norm(UPDATE) / np.linalg.norm(across)
    assert sine(sketched(UPDATE), sketched(turned)) == pytest.approx(np.sin(angle), rel=0.34)


def test_the_same_direction_is_near_whatever_its_length_or_sign(sketched):
    assert sine(sketched(UPDATE), sketched(-3 * UPDATE)) < 1e-6
    assert sine(sketched(0 * UPDATE), sketched(0 * UPDATE)) == 0
    assert sine(sketched(0 * UPDATE), sketched(UPDATE)) == 1


def test_another_secret_gives_other_numbers_of_the_same_answer(sketched):
    assert sine(sketched(UPDATE), sketched(UPDATE, b"t" * 32)) > 0.5
    assert sketched(UPDATE).shape == (NUMBERS,)
    assert nearest(sketched(UPDATE), [], 0.02) is None


def test_what_is_not_finite_is_near_to_nothing_and_hides_nothing_that_is_near() -> None:
    own, blind = np.ones(NUMBERS), np.full(NUMBERS, np.nan)
    assert nearest(own, [blind, own, blind], 0.02) == 1
    assert nearest(own, [blind], 0.02) is None
    assert nearest(blind, [own], 0.02) is None
