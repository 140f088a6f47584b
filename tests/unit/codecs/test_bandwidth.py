"""Bytes against the formulas and the tables of Henkel (2021)."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest

from hanse_fabric.tensors.layout import Entry, Layout
from hanse_learning.codecs.bandwidth import Way, factor, saving
from hanse_learning.codecs.chain import build_chain
from hanse_learning.codecs.writing import encode
from unit.codecs.thesis_tables import (
    BOTH,
    CIFAR,
    FASHION,
    HALF,
    HISTOLOGY,
    P10,
    P50,
    P90,
    PRINTED,
    UNEXPLAINED,
    WHOLE,
)  # fmt: skip
from unit.codecs.unit_codecs import decoded_of

TWO_LAYERS = Layout.of([
    Entry("conv1.weight", "F32", (32, 1, 5, 5)), Entry("conv1.bias", "F32", (32,)),
    Entry("conv2.weight", "F32", (64, 32, 5, 5)), Entry("conv2.bias", "F32", (64,)),
    Entry("dense.weight", "F32", (512, 3136)), Entry("dense.bias", "F32", (512,)),
    Entry("output.weight", "F32", (10, 512)), Entry("output.bias", "F32", (10,)),
])  # fmt: skip
"""The network with two convolutions of the thesis, 1,663,370 parameters."""


def test_the_formulas_have_the_factors_of_the_thesis_and_its_corrected_one():
    found = [factor(HALF, HALF), *(factor(way, WHOLE) for way in (P10, P50, P90)), factor(BOTH, HALF)]
    assert found == [0.5, 0.965625, 0.765625, 0.565625, 0.390625]
    assert factor(PRINTED, HALF) == pytest.approx(0.375781, abs=5e-7)


TABLES = {"5.1": FASHION, "5.2": CIFAR, "5.3": HISTOLOGY}
ROWS = [(table, row) for table in TABLES for row in TABLES[table].rows]


@pytest.mark.parametrize("name", TABLES)
def test_the_cells_of_the_plain_run_are_whole_rounds(name: str) -> None:
    table = TABLES[name]
    for rounds, printed in table.baseline.items():
        assert rounds * table.plain == pytest.approx(printed, abs=table.off, rel=6e-6)


@pytest.mark.parametrize(("name", "row"), ROWS)
def test_the_cells_of_the_theses_tables_are_whole_rounds_of_the_formula(name: str, row: str) -> None:
    """And their percentages are those of these rounds."""
    table = TABLES[name]
    by, cells = table.rows[row]
    for (printed, percent, rounds), plain_rounds in zip(cells, table.baseline, strict=False):
        assert rounds * by * table.plain == pytest.approx(printed, abs=table.off, rel=6e-6)
        assert saving(plain_rounds, rounds, by) == pytest.approx(percent, abs=0.0051), printed


def test_tables_5_1_and_5_2_are_here_in_whole() -> None:
    cells = [sum(len(row) for _, row in TABLES[name].rows.values()) + len(TABLES[name].baseline) for name in TABLES]
    assert cells == [40, 45, 31]


@pytest.mark.parametrize("row", UNEXPLAINED)
def test_two_rows_of_table_5_3_are_whole_rounds_by_no_factor_that_we_know(row: str) -> None:
    by, cells = UNEXPLAINED[row]
    for printed in cells:
        rounds = printed / (by * HISTOLOGY.plain)
        assert abs(rounds - round(rounds)) > 10 * HISTOLOGY.off / (by * HISTOLOGY.plain), printed


def test_by_the_factor_of_its_own_p_90_of_table_5_2_would_be_ahead_of_p_50_where_it_arrives() -> None:
    plain, (own, _), (_, printed) = CIFAR.baseline, FASHION.rows["P 90"], CIFAR.rows["P 90, by the factor of P 50"]
    found = [saving(rounds, cell[2], own) for rounds, cell in zip(plain, printed, strict=False)]
    assert found == pytest.approx([30.87, 40.11, 49.09, 48.43], abs=0.0051)
    of_p50 = [cell[1] for cell in CIFAR.rows["P 50"][1]]
    assert all(mine > other for mine, other in zip(found, of_p50, strict=False))


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
