"""How many cells of a table begin with which bits: a site's answer to a question for order statistics (`order`)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from hanse_learning.preparation.cells import Cells, blocks
from hanse_learning.preparation.order import KEY_BITS, PrefixQuestion


def keys(numbers: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Whole numbers that sort as the numbers do; -0 is 0."""
    bits = (numbers + 0.0).view(np.uint64)
    sign = np.uint64(1 << KEY_BITS - 1)
    return np.where(bits & sign, ~bits, bits | sign)


def histograms(question: PrefixQuestion, table: Mapping[str, Cells]) -> NDArray[np.int64]:
    """(prefixes, 2^bits) counts, of the question's columns and prefixes in their order."""
    found: NDArray[np.int64] = np.sum([_of_block(question, block) for block in blocks(table)], axis=0, dtype=np.int64)
    return found


def _of_block(question: PrefixQuestion, table: Mapping[str, Cells]) -> NDArray[np.int64]:
    found = []
    last = np.uint64((1 << question.bits) - 1)
    shift = np.uint64(KEY_BITS - question.depth - question.bits)
    for name, prefixes in question.prefixes.items():
        cells = table[name]
        of_column = keys(cells[~np.isnan(cells)]) >> shift
        for prefix in prefixes:
            begins = of_column >> np.uint64(question.bits) == np.uint64(prefix)
            found.append(np.bincount((of_column[begins] & last).astype(np.int64), minlength=1 << question.bits))
    return np.array(found, np.int64)
