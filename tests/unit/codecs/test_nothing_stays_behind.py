"""What codecs once kept for ever, or moved where there was nothing: single and constant values, and zeros."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import pytest

from hanse_fabric.tensors.layout import Entry, Layout
from hanse_learning.codecs.chain import build_chain
from hanse_learning.codecs.writing import encode
from unit.codecs.unit_codecs import decoded_of

Sections = list[dict[str, Any]]
HALF: Sections = [{"name": "percentile", "p": 50}]


def sent(
    values: np.ndarray, chain: Sections, *, residual: dict[str, np.ndarray] | None = None, seed: int = 3
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """What arrives of an entry, and what was left out of it."""
    layout = Layout.of([Entry("w", "F32", values.shape)])
    file = BytesIO()
    left = encode(file, layout, {"w": values}, build_chain(chain), seed=seed, residual=residual)
    return decoded_of(layout, file.getvalue(), chain)["w"], left


@pytest.mark.parametrize("p", [0, 50, 90, 99.9])
@pytest.mark.parametrize("of", ["magnitude", "value"])
@pytest.mark.parametrize("values", [[0.25], [-0.25], [0.5] * 7, [-0.5] * 7], ids=str)
def test_a_single_value_and_a_constant_entry_arrive_beyond_whatever_percentile(
    values: list[float], of: str, p: float
) -> None:
    given = np.array(values, np.float32)
    chain = [{"name": "percentile", "p": p, "of": of}]
    np.testing.assert_array_equal(sent(given, chain)[0], given)
    back, left = sent(given, chain, residual={})
    np.testing.assert_array_equal(back, given)
    assert not left["w"].any()


def test_of_many_equal_largest_values_all_are_sent_and_of_zeros_none() -> None:
    given = np.array([0.1, 2.0, -2.0, 2.0], np.float32)
    np.testing.assert_array_equal(sent(given, HALF)[0], [0.0, 2.0, -2.0, 2.0])
    assert not sent(np.zeros(5, np.float32), HALF)[0].any()


def test_where_values_differ_those_strictly_beyond_are_sent_and_no_more() -> None:
    given = np.array([1.0, 2.0, 3.0, 4.0, 5.0], np.float32)
    np.testing.assert_array_equal(sent(given, HALF)[0], [0.0, 0.0, 0.0, 4.0, 5.0])


def test_with_error_feedback_a_bias_of_one_value_is_not_gathered_for_ever() -> None:
    kept: dict[str, np.ndarray] = {}
    arrived = 0.0
    for _ in range(5):
        back, kept = sent(np.array([0.5], np.float32), HALF, residual=kept)
        arrived += float(back[0])
    assert arrived == 2.5


@pytest.mark.parametrize("chosen", [{"name": "top_k", "fraction": 0.5}, {"name": "top_k", "k": 100}, HALF[0]], ids=str)
def test_zeros_among_the_largest_values_arrive_as_zeros_also_in_one_bit(chosen: dict[str, Any]) -> None:
    given = np.zeros(100, np.float32)
    given[[3, 40, 77]] = [1.0, -1.0, 1.0]
    back, _ = sent(given, [chosen, {"name": "ternary"}])
    np.testing.assert_array_equal(back, given)


def test_a_zero_at_a_place_that_the_seed_chooses_is_rounded_up_as_often_as_down() -> None:
    given = np.zeros(60_000, np.float32)
    given[:600] = 1.0
    chain = [{"name": "random_k", "fraction": 0.5}, {"name": "ternary"}]
    back, _ = sent(given, chain)
    zeros = np.sign(back[600:][back[600:] != 0])
    assert len(zeros) > 29_000
    assert abs(zeros.sum()) < 4 * len(zeros) ** 0.5  # by chance, once in ten thousand seeds it is more
    assert (back[:600] >= 0).all()
    np.testing.assert_array_equal(back, sent(given, chain)[0])
    assert (back != sent(given, chain, seed=4)[0]).any()
