"""Bytes against the formulas and the tables of Henkel (2021)."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest

from hanse_fabric.tensors.layout import Entry, Layout
from hanse_learning.codecs.bandwidth import Way, factor, saving
from hanse_learning.codecs.chain import build_chain
from hanse_learning.codecs.writing import encode
from unit.codecs.unit_codecs import decoded_of

TWO_LAYERS = Layout.of([
    Entry("conv1.weight", "F32", (32, 1, 5, 5)), Entry("conv1.bias", "F32", (32,)),
    Entry("conv2.weight", "F32", (64, 32, 5, 5)), Entry("conv2.bias", "F32", (64,)),
    Entry("dense.weight", "F32", (512, 3136)), Entry("dense.bias", "F32", (512,)),
    Entry("output.weight", "F32", (10, 512)), Entry("output.bias", "F32", (10,)),
])  # fmt: skip
"""The network with two convolutions of the thesis, 1,663,370 parameters."""
PLAIN_MB, PLAIN_3_MB = 133.0696, 790.3035
"""A plain round of ten clients, in 10^6 bytes, of the networks with two and with three convolutions."""

WHOLE = Way()
P10, P50, P90 = (Way(sent=sent, place_bits=1) for sent in (0.9, 0.5, 0.1))
HALF = Way(bits=16)
BOTH = Way(sent=0.5, bits=16, place_bits=1)
PRINTED = Way(sent=0.5, bits=16, place_bits=0.05)
"""The mask of one client of ten, halved: what the thesis's tables of the combination were made with."""


def test_the_formulas_have_the_factors_of_the_thesis_and_its_corrected_one():
    found = [factor(HALF, HALF), *(factor(way, WHOLE) for way in (P10, P50, P90)), factor(BOTH, HALF)]
    assert found == [0.5, 0.965625, 0.765625, 0.565625, 0.390625]
    assert factor(PRINTED, HALF) == pytest.approx(0.375781, abs=5e-7)


CELLS = {
    "baseline": (1.0, PLAIN_MB, {665.35: 5, 1064.56: 8, 1996.04: 15, 3725.95: 28, 11177.85: 84}),
    "P 10": (0.965625, PLAIN_MB, {642.48: 5, 1156.46: 9, 1927.43: 15, 4240.35: 33, 11179.10: 87}),
    "P 50": (0.765625, PLAIN_MB, {509.41: 5, 815.05: 8, 1528.22: 15, 2852.68: 28, 7437.35: 73}),
    "P 90": (0.565625, PLAIN_MB, {376.34: 5, 677.41: 9, 1053.75: 14, 1655.89: 22, 3989.18: 53}),
    "E 2": (1.0, PLAIN_MB, {399.21: 3, 532.28: 4, 1064.56: 8, 1996.04: 15, 7318.83: 55}),
    "E 20": (1.0, PLAIN_MB, {133.07: 1, 266.14: 2, 399.21: 3, 9181.80: 69}),
    "half": (0.5, PLAIN_MB, {399.21: 6, 1663.37: 25}),
    "all three, as printed": (factor(PRINTED, HALF), PLAIN_MB, {50.01: 1, 100.01: 2, 150.02: 3, 200.02: 4}),
    "CIFAR baseline": (1.0, PLAIN_3_MB, {7112.73: 9, 13435.16: 17, 23709.11: 30, 60063.07: 76}),
    "CIFAR P 10": (0.965625, PLAIN_3_MB, {6868.26: 9, 20604.73: 27, 54182.78: 71}),
    "CIFAR P 50": (0.765625, PLAIN_3_MB, {5445.69: 9, 9076.15: 15, 25413.21: 42}),
    "CIFAR P 90, by the factor of P 50": (0.765625, PLAIN_3_MB, {6655.84: 11, 10891.38: 18, 18757.37: 31}),
    "CIFAR half": (0.5, PLAIN_3_MB, {3556.37: 9, 11064.25: 28, 19757.59: 50}),
    "CIFAR all three": (factor(PRINTED, HALF), PLAIN_3_MB, {1781.89: 6, 3563.78: 12, 10097.37: 34}),
}
"""Cells of the thesis's tables 5.1 and 5.2: a round's factor, a plain round in MB, and rounds by the printed MB."""


@pytest.mark.parametrize("name", CELLS)
def test_the_cells_of_the_theses_tables_are_whole_rounds_of_the_formula(name):
    by, plain, cells = CELLS[name]
    for printed, rounds in cells.items():
        assert rounds * by * plain == pytest.approx(printed, abs=0.006, rel=6e-6), printed


def test_savings_are_the_printed_ones_and_may_be_negative():
    assert saving(5, 5, factor(P10, WHOLE)) == pytest.approx(3.44, abs=0.005)
    assert saving(8, 25, 0.5) == pytest.approx(-56.25)
    assert saving(28, 4, factor(BOTH, HALF)) == pytest.approx(94.42, abs=0.005)


@pytest.mark.parametrize(
    ("chain", "way"),
    [
        ([{"name": "float16"}], HALF),
        *(([{"name": "percentile", "p": 100 - 100 * way.sent}], way) for way in (P10, P50, P90)),
        ([{"name": "percentile", "p": 50}, {"name": "float16"}], BOTH),
        ([{"name": "integers"}], Way(bits=8)),
        ([{"name": "top_k", "fraction": 0.01}], Way(sent=0.01, bits=48)),
        ([{"name": "random_k", "fraction": 0.05}], Way(sent=0.05)),
        ([{"name": "percentile", "p": 50}, {"name": "ternary"}], Way(sent=0.5, bits=1, place_bits=1)),
    ],
    ids=str,
)
def test_an_encoded_update_has_the_bytes_of_the_formula_and_few_more(chain, way):
    draw = np.random.default_rng(1)
    arrays = {entry.name: draw.standard_normal(entry.shape, dtype=np.float32) for entry in TWO_LAYERS}
    file = BytesIO()
    encode(file, TWO_LAYERS, arrays, build_chain(chain), seed=1)
    plain = TWO_LAYERS.data_bytes
    assert plain == 4 * 1_663_370
    assert factor(way, WHOLE) - 1e-5 <= (len(file.getvalue()) + plain) / (2 * plain) < factor(way, WHOLE) + 2e-4


def test_bits_tell_places_in_fewer_bytes_than_numbers_of_16_bits_where_more_than_one_in_sixteen_is_sent():
    size = 65_536
    values = np.random.default_rng(2).standard_normal(size).astype(np.float32)
    layout = Layout.of([Entry("w", "F32", (size,))])
    for fraction, expected in ((0.05, 6 * 0.05 * size), (0.08, 4 * 0.08 * size + size / 8)):
        file = BytesIO()
        encode(file, layout, {"w": values}, build_chain([{"name": "top_k", "fraction": fraction}]), seed=1)
        assert len(file.getvalue()) == pytest.approx(expected, abs=400)


def test_with_error_feedback_the_sum_of_all_rounds_arrives_but_for_what_the_last_has_left_out():
    layout = Layout.of([Entry("w", "F64", (1000,))])
    chain = [{"name": "top_k", "fraction": 0.02}, {"name": "ternary"}]
    draw, left = np.random.default_rng(3), {}
    sent, arrived = np.zeros(1000), np.zeros(1000)
    for number in range(60):
        update = {"w": draw.standard_normal(1000) + 0.1}
        file = BytesIO()
        left = encode(file, layout, update, build_chain(chain), seed=number, residual=left)
        sent += update["w"]
        arrived += decoded_of(layout, file.getvalue(), chain)["w"]
    np.testing.assert_allclose(arrived + left["w"], sent, rtol=1e-9, atol=1e-9)
    assert np.linalg.norm(arrived - sent) < 0.6 * np.linalg.norm(sent)
