"""Numbers as PLINK prints them. What is expected of ties was printed by PLINK v1.90b6.26 (--assoc, --assoc counts)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse_genomics.results.numbers import p_texts, plink_texts, power_of_ten_text

ORDINARY = st.floats(min_value=1e-300, max_value=1e300)


def one(value: float) -> str:
    return str(plink_texts(np.array([value]))[0])


@settings(max_examples=50)
@given(st.lists(ORDINARY, min_size=1, max_size=200))
def test_a_number_that_is_no_decimal_tie_is_printed_as_c_prints_it(values: list[float]) -> None:
    # A double is a tie, for PLINK, when its seventeen digits are 5 and zeros (or 4 and nines) after the fourth.
    plain = [v for v in values if not 0.49999 < float(f"{v:.17e}"[1:6].replace(".", "0.") or 0) < 0.50001]
    free = [v for v in plain if f"{v:.9e}"[5:10] not in ("50000", "49999")]
    assert plink_texts(np.array(free)).tolist() == [f"{v:.4g}" for v in free]


@settings(max_examples=50)
@given(st.integers(1000, 9999), st.integers(-300, 300))
def test_four_digits_are_printed_as_they_are(digits: int, exponent: int) -> None:
    value = float(f"{digits}e{exponent}")
    assert float(one(value)) == value
    assert one(-value) == "-" + one(value)


@pytest.mark.parametrize(
    ("count", "of", "expected"),
    [
        (37, 16_000, "0.002312"),  # 0.0023125
        (7988, 16_000, "0.4992"),  # 0.49925: 0.4993 by printf
        (2, 16_000, "0.000125"),
        (1, 16_000, "6.25e-05"),
        (81, 8000, "0.01012"),  # 0.010125
    ],
)
def test_a_decimal_tie_goes_to_the_even_digit(count: int, of: int, expected: str) -> None:
    assert one(count / of) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "0"), (-0.0, "0"), (1.0, "1"), (10.0, "10"), (2500.0, "2500"), (9999.4, "9999"), (9999.6, "1e+04"),
        (123_456.0, "1.235e+05"), (0.0001, "0.0001"), (0.000099999, "0.0001"), (0.00009, "9e-05"), (0.99996, "1"),
        (1e-5, "1e-05"), (1e100, "1e+100"), (5e-324, "4.941e-324"), (1.7976e308, "1.798e+308"),
        (float("nan"), "NA"), (float("inf"), "inf"), (float("-inf"), "-inf"),
    ],
)  # fmt: skip
def test_zeros_infinities_and_limits_of_digits_are_printed_as_plink_prints_them(value: float, expected: str) -> None:
    assert one(value) == expected


def test_a_p_value_below_all_doubles_is_printed_from_its_logarithm() -> None:
    texts = p_texts(np.array([0.0, 0.05, np.nan, 0.0]), np.array([-1234.5678, np.log10(0.05), np.nan, -400.0]))
    assert texts.tolist() == ["2.705e-1235", "0.05", "NA", "1e-400"]
    assert power_of_ten_text(-320.0) == "1e-320"


def test_an_empty_array_is_printed_as_no_texts() -> None:
    assert plink_texts(np.array([])).tolist() == []
