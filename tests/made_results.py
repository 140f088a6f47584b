"""Results of no study: of given statistics, for the tests of what is made of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from hanse_genomics.arrays import Arrays
from hanse_genomics.files.snps import CommonSnps
from hanse_genomics.results import Results, of_arrays


def snps(number: int) -> CommonSnps:
    """Two to a chromosome, 1 to 26 and again."""
    return CommonSnps(
        code=(np.arange(number) * 26 // max(number, 1) + 1).astype(np.int8),
        position=np.arange(1, number + 1) * 1000,
        name=[f"rs{at}" for at in range(number)],
        first=["A"] * number,
        second=["G"] * number,
    )


def made_results(test: str, number: int = 4, *, summary: dict[str, Any] | None = None, **columns: Any) -> Results:
    """Results with given columns; the others are untold, and every SNP is tested with p 0.5."""
    arrays: Arrays = {
        **snps(number).arrays(),
        "minor": np.zeros(number, np.uint8),
        "reason": np.zeros(number, np.uint8),
        "p": np.full(number, 0.5),
        "log10_p": np.full(number, np.log10(0.5)),
    }
    arrays |= {name: np.asarray(column) for name, column in columns.items()}
    return of_arrays(arrays, {"study": {"test": test}, **(summary or {})})
