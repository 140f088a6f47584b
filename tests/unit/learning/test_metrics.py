"""Matthews correlation and what it took to reach a target."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import matthews_corrcoef

from hanse_fabric.errors import HanseError
from hanse_learning.metrics import Reached, confusion, matthews, reached


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=60))
def test_matthews_is_scikit_learns_for_any_classes(pairs: list[tuple[int, int]]) -> None:
    truth, said = np.array(pairs).T
    assert matthews(confusion(truth, said, 4)) == pytest.approx(matthews_corrcoef(truth, said), abs=1e-12)


def test_matthews_of_two_classes_is_the_textbooks() -> None:
    tp, fn, fp, tn = 40, 10, 5, 45
    expected = (tp * tn - fp * fn) / ((tp + fn) * (tp + fp) * (tn + fp) * (tn + fn)) ** 0.5
    assert matthews(np.array([[tn, fp], [fn, tp]])) == pytest.approx(expected)


def test_a_model_with_one_answer_for_everything_has_no_correlation() -> None:
    assert matthews(np.array([[75, 0], [25, 0]])) == 0.0


def test_counts_of_sites_add_up_and_do_not_overflow() -> None:
    one = confusion(np.array([0, 1, 1]), np.array([0, 1, 0]), 2)
    assert matthews(one + one) == matthews(one)
    assert matthews(one * 10**9) == pytest.approx(matthews(one))


def test_reached_gives_the_first_round_at_the_target_and_the_bytes_until_then() -> None:
    accuracy = [0.5, None, 0.8, 0.7, 0.9]
    assert reached(accuracy, 0.8, round_bytes=10) == Reached(3, 30)
    assert reached(accuracy, 0.9, round_bytes=[1, 2, 3, 4, 5]) == Reached(5, 15)
    assert reached(accuracy, 0.95, round_bytes=10) is None
    assert reached([3.0, 1.0], 2.0, larger_is_better=False) == Reached(2, 0)


def test_bytes_of_other_rounds_are_refused() -> None:
    with pytest.raises(HanseError, match="round_bytes"):
        reached([0.5, 0.6], 0.6, round_bytes=[1])
