"""The columns of PLINK's result tables, test by test, and what Hanse adds at their end."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from hanse_genomics.reasons import Reason
from hanse_genomics.results.numbers import NOT_AVAILABLE, Texts, p_texts, plink_texts
from hanse_genomics.results.table import Results
from hanse_schemas.study import Study

NOTHING = "."
"""In column REASON of a SNP that was tested."""

Column = Callable[[Results, slice], Texts]
"""The texts of a column for some of the SNPs."""


def columns_of(study: Study) -> dict[str, Column]:
    """By name and in PLINK's order: its columns of `--assoc`, `--model trend-only`, `--linear`, `--logistic beta`; then
    those that are Hanse's, `REASON` last: why a SNP has NA, in one word of `hanse_genomics.reasons`."""
    ordinary = {"CHR": _chromosome, "SNP": _name, "BP": _position}
    match study.test:
        case "chi_square":
            tested = {
                **ordinary, "A1": _allele(0), "F_A": _number("f_a"), "F_U": _number("f_u"), "A2": _allele(1),
                "CHISQ": _number("chisq"), "P": _p, "OR": _number("odds_ratio"), "SE": _number("se"),
            }  # fmt: skip
        case "trend":
            tested = {
                "CHR": _chromosome, "SNP": _name, "A1": _allele(0), "A2": _allele(1), "TEST": _word("TREND"),
                "AFF": _pair(0), "UNAFF": _pair(2), "CHISQ": _number("chisq"), "DF": _degrees, "P": _p,
                "BP": _position,
            }  # fmt: skip
        case "linear" | "logistic":
            tested = {
                **ordinary, "A1": _allele(0), "TEST": _word("ADD"), "NMISS": _count("nmiss"),
                "BETA": _number("beta"), "STAT": _number("stat"), "P": _p, "SE": _number("se"),
            }  # fmt: skip
            if study.test == "logistic":
                tested["OR"] = _odds_ratio
    return {**tested, "REASON": _reason}


def _number(name: str) -> Column:
    return lambda results, rows: plink_texts(results.column(name)[rows])


def _count(name: str) -> Column:
    def texts(results: Results, rows: slice) -> Texts:
        values = results.column(name)[rows].tolist()
        return np.array([NOT_AVAILABLE if math.isnan(value) else f"{value:.0f}" for value in values], dtype=object)

    return texts


def _word(word: str) -> Column:
    return lambda results, rows: np.full(len(range(*rows.indices(len(results)))), word, dtype=object)


def _allele(which: int) -> Column:
    def texts(results: Results, rows: slice) -> Texts:
        pairs = (results.snps.first[rows], results.snps.second[rows])
        swapped = (np.asarray(results.arrays["minor"][rows]) == 1).tolist()
        chosen = zip(*pairs, swapped, strict=True)
        return np.array([(first, second)[which ^ swap] for first, second, swap in chosen], dtype=object)

    return texts


def _pair(column: int) -> Column:
    """PLINK's counts of A1/A2 among cases (column 0) or controls (2)."""

    def texts(results: Results, rows: slice) -> Texts:
        counts = np.asarray(results.arrays["counts"])[rows, column : column + 2].tolist()
        return np.array([f"{minor:.0f}/{major:.0f}" for minor, major in counts], dtype=object)

    return texts


def _chromosome(results: Results, rows: slice) -> Texts:
    return np.array([str(code) for code in results.snps.code[rows].tolist()], dtype=object)


def _name(results: Results, rows: slice) -> Texts:
    return np.array(results.snps.name[rows], dtype=object)


def _position(results: Results, rows: slice) -> Texts:
    return np.array([str(place) for place in results.snps.position[rows].tolist()], dtype=object)


def _p(results: Results, rows: slice) -> Texts:
    return p_texts(results.column("p")[rows], results.column("log10_p")[rows])


def _degrees(results: Results, rows: slice) -> Texts:
    return np.where(np.isfinite(results.column("chisq")[rows]), "1", NOT_AVAILABLE).astype(object)


def _odds_ratio(results: Results, rows: slice) -> Texts:
    with np.errstate(over="ignore"):
        return plink_texts(np.exp(results.column("beta")[rows]))


def _reason(results: Results, rows: slice) -> Texts:
    codes = np.asarray(results.arrays["reason"])[rows].tolist()
    said = {code: Reason(code).name if code else NOTHING for code in set(codes)}
    return np.array([said[code] for code in codes], dtype=object)
