"""Federated results beside PLINK's table of the pooled files: every printed digit, for every SNP."""

from __future__ import annotations

import gzip
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from statsmodels.discrete.discrete_model import Logit

from hanse_genomics.files.cohort import open_cohort
from hanse_genomics.genotypes.dosages import dosages, missing
from hanse_schemas.study import Study

_NA = frozenset({"NA", "nan", "-nan", "inf"})
_UNTURNED = frozenset({"NMISS", "CHISQ", "P", "SE"})
_JUDGED = 1000
_HALF_DIGIT = 0.5 + 1e-6
_BESIDE = frozenset({"CHR", "SNP", "BP", "TEST"})


Difference = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Equality:
    """Of all SNPs.

    Attributes:
        snps: in both tables; values: printed by PLINK as numbers (alleles included) and compared.
        tied: SNPs whose alleles are equally frequent, where PLINK takes the file's A1 and Hanse, whatever the files,
            the one that is first in the alphabet: of these, columns that depend on it are not compared.
        differences: values that are printed otherwise: SNP, column, PLINK's, ours.
        absent: SNPs that one of the tables lacks.
    """

    snps: int
    values: int
    tied: int
    absent: int
    differences: tuple[Difference, ...]

    def body(self) -> dict[str, object]:
        """Numbers, and the first differences."""
        numbers = {"snps": self.snps, "values": self.values, "tied": self.tied, "absent": self.absent}
        return numbers | {"different": len(self.differences), "examples": self.differences[:5]}


def compare(ours: Path, plinks: Path, tied: Collection[str]) -> Equality:
    """Compare all columns that both tables have. PLINK's NA is not compared: Hanse says why, where it has none either.

    Args:
        ours: `results.tsv.gz`; plinks: PLINK's table.
        tied: names of SNPs whose alleles are equally frequent.
    """
    theirs = _lines(plinks)
    header = next(theirs)
    mine = _lines(ours)
    own_header = next(mine)
    columns = [(name, header.index(name), own_header.index(name)) for name in own_header if name in header]
    columns = [column for column in columns if column[0] not in _BESIDE]
    key, own_key = header.index("SNP"), own_header.index("SNP")
    known = {words[key]: words for words in theirs}
    total = len(known)
    snps = values = turned = 0
    differences: list[Difference] = []
    for words in mine:
        reference = known.pop(words[own_key], None)
        if reference is None:
            total += 1
            continue
        snps += 1
        tie = words[own_key] in tied
        turned += tie
        for name, at, own_at in columns:
            if reference[at] in _NA or (tie and name not in _UNTURNED):
                continue
            values += 1
            if reference[at] != words[own_at]:
                differences.append((words[own_key], name, reference[at], words[own_at]))
    return Equality(snps, values, turned, total - snps, tuple(differences))


def judged(
    differences: Collection[Difference], prefix: Path, phenotype: str, covariates: Sequence[str]
) -> tuple[int, int]:
    """Of a logistic regression's differences, those of the first thousand SNPs: how many there are, and how many of
    Hanse's values are those of statsmodels, as far as they are printed. PLINK 1.9 computes in single precision.

    Args:
        prefix: the pooled files.
    """
    study = Study(test="logistic", phenotype=phenotype, covariates=tuple(covariates))
    pool = open_cohort(prefix, study, Path(f"{prefix}.pheno"), Path(f"{prefix}.cov"))
    place = {name: at for at, name in enumerate(pool.snps.name)}
    known = ~np.isnan(pool.phenotype) & ~np.isnan(pool.covariates).any(axis=1)
    columns: dict[str, list[tuple[str, str]]] = {}
    for name, column, _, own in differences:
        columns.setdefault(name, []).append((column, own))
    looked_at = ours = 0
    for name, values in list(columns.items())[:_JUDGED]:
        packed = pool.packed(np.array([place[name]]))
        copies, (_, absent) = dosages(packed, pool.samples)[0], missing(packed, pool.samples)
        taken = known.copy()
        taken[absent] = False
        predictors = np.column_stack([np.ones(int(taken.sum())), copies[taken], pool.covariates[taken]])
        # The scale is nothing to the SNP's own coefficient, and much to the solver.
        predictors[:, 2:] = (predictors[:, 2:] - predictors[:, 2:].mean(axis=0)) / predictors[:, 2:].std(axis=0)
        fit = Logit(pool.phenotype[taken], predictors).fit(disp=0, method="newton", tol=1e-12)
        sign = 1 if copies[taken].mean() <= 1 else -1
        exact = {"BETA": sign * fit.params[1], "STAT": sign * fit.tvalues[1], "P": fit.pvalues[1]}
        looked_at += len(values)
        for column, own in values:
            digit = 10.0 ** math.floor(math.log10(abs(float(own))) - 3)
            ours += bool(abs(exact[column] - float(own)) <= _HALF_DIGIT * digit)
    return looked_at, ours


def _lines(path: Path) -> Iterator[list[str]]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        for line in file:
            yield line.split()
