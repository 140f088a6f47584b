"""Numbers as PLINK 1.9 prints them: %.4g, but decimal ties go to the even digit, where C goes by the binary fraction.

0.49925 is 0.4992 in PLINK's tables and 0.4993 by printf. Allele frequencies are full of such ties, so that tables which
are laid beside PLINK's need its rule: a fraction of the last digit within 5e-9 of one half counts as one half.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Texts = NDArray[np.object_]

DIGITS = 4
_LEAST, _BEYOND = 10 ** (DIGITS - 1), 10**DIGITS
_SLOP = 5e-9
NOT_AVAILABLE = "NA"
_SMALLEST_LOG10 = -307.0
"""Below it a p-value is written from its logarithm: doubles lose digits there, and end at 5e-324."""


def plink_texts(values: NDArray[np.float64]) -> Texts:
    """Each value with four significant digits; NA for NaN.

    Args:
        values: float64 (S,).

    Returns:
        str objects (S,).
    """
    values = np.asarray(values, dtype=np.float64)
    texts = np.full(values.shape, NOT_AVAILABLE, dtype=object)
    texts[values == 0] = "0"
    texts[values == np.inf], texts[values == -np.inf] = "inf", "-inf"
    ordinary = np.flatnonzero(np.isfinite(values) & (values != 0))
    if len(ordinary):
        digits, exponents = rounded(np.abs(values[ordinary]))
        codes, places = np.unique(exponents * _BEYOND + digits, return_inverse=True)
        words = np.array([_word(*divmod(code, _BEYOND)) for code in codes.tolist()], dtype=object)
        texts[ordinary] = words[places]
        negative = ordinary[values[ordinary] < 0]
        texts[negative] = "-" + texts[negative]
    return texts


def p_texts(p: NDArray[np.float64], log10_p: NDArray[np.float64]) -> Texts:
    """P-values; those below the range of doubles from their logarithms: 1.234e-320.

    Args:
        p: float64 (S,); NaN is NA.
        log10_p: float64 (S,), log10 of the same.
    """
    texts = plink_texts(p)
    for place in np.flatnonzero(np.isfinite(log10_p) & (log10_p < _SMALLEST_LOG10)).tolist():
        texts[place] = power_of_ten_text(float(log10_p[place]))
    return texts


def power_of_ten_text(log10: float) -> str:
    """10^log10 with four significant digits, however small. Pure."""
    exponent = math.floor(log10)
    digits, more = rounded(np.array([10.0 ** (log10 - exponent)]))
    return _word(exponent + int(more[0]), int(digits[0]))


def rounded(values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The four digits 1000..9999 and the decimal exponents of positive finite values."""
    exponents = np.floor(np.log10(values)).astype(np.int64)
    scaled = _times_power(values, DIGITS - 1 - exponents)
    # log10 may be off by one beside a power of ten.
    low, high = scaled < _LEAST, scaled >= _BEYOND
    scaled = np.where(low, scaled * 10, np.where(high, scaled / 10, scaled))
    exponents += high.astype(np.int64) - low
    digits = np.floor(scaled).astype(np.int64)
    half = np.where(digits % 2 == 1, 0.5 - _SLOP, 0.5 + _SLOP)
    digits += scaled - digits >= half
    full = digits == _BEYOND
    return np.where(full, _LEAST, digits), exponents + full


def _times_power(values: NDArray[np.float64], powers: NDArray[np.int64]) -> NDArray[np.float64]:
    """values * 10^powers, in two factors: 10^327 is no double."""
    half = powers // 2
    found: NDArray[np.float64] = values * 10.0**half * 10.0 ** (powers - half)
    return found


def _word(exponent: int, digits: int) -> str:
    """Four digits before a power of ten, as %g writes them."""
    if -308 < exponent < 308:
        return f"{float(f'{digits}e{exponent - DIGITS + 1}'):.{DIGITS}g}"
    tail = str(digits)[1:].rstrip("0")
    return f"{str(digits)[0]}{'.' if tail else ''}{tail}e{exponent:+03d}"
