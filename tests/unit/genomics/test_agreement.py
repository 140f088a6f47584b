"""How well two analyses agree, and the tables that are compared."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from hanse_fabric.errors import HanseError
from hanse_genomics.compare import agreement, bonferroni, read_associations


def test_hits_are_found_missed_or_false_by_the_pooled_analysis() -> None:
    pooled = np.array([-9.0, -8.0, -1.0, -0.5, np.nan, -7.9])
    other = np.array([-8.5, -7.0, -9.0, -0.4, -20.0, np.nan])
    found = agreement(other, pooled)
    assert (found.snps, found.significant, found.found, found.missed, found.false) == (4, 3, 1, 2, 2)
    assert found.largest == pytest.approx(8.0)
    assert found.level == 5e-8


def test_correlations_are_those_of_scipy() -> None:
    rng = np.random.default_rng(1)
    x = np.round(-rng.exponential(1.0, 200), 1)  # with ties
    y = x + rng.normal(0, 0.3, 200)
    found = agreement(x, y)
    assert found.pearson == pytest.approx(pearsonr(x, y).statistic)
    assert found.spearman == pytest.approx(spearmanr(x, y).statistic)


def test_correlations_that_are_not_defined_are_nan() -> None:
    found = agreement(np.array([-1.0]), np.array([-1.0]))
    assert np.isnan(found.pearson)
    assert found.largest == 0.0
    assert np.isnan(agreement(np.array([np.nan]), np.array([np.nan])).largest)
    with pytest.raises(HanseError, match="log10_p"):
        agreement(np.zeros(2), np.zeros(3))


def test_the_significance_level_is_bonferronis() -> None:
    assert bonferroni(4_878_280) == pytest.approx(1.025e-8, rel=1e-3)  # SHIP: Nasirigerdeh et al., 2022


def test_plinks_table_is_read_by_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.assoc.logistic"
    path.write_text(
        " CHR SNP BP A1 TEST NMISS OR STAT P\n"
        " 1 rs1 10 A ADD 60 2 3 0.0027\n"
        " 1 rs1 10 A AGE 60 1 1 0.3\n"
        " 1 rs2 20 C ADD 60 NA NA NA\n"
    )
    found = read_associations(path)
    assert found.snp == ["rs1", "rs2"]
    assert found.beta[0] == pytest.approx(np.log(2))
    assert found.se[0] == pytest.approx(np.log(2) / 3)
    assert np.isnan(found.beta[1])
    assert np.isnan(found.log10_p[1])


def test_effects_of_the_other_allele_change_their_sign(tmp_path: Path) -> None:
    path = tmp_path / "r.tsv.gz"
    rows = "rs1\tA\t0.5\t0.1\t1e-400\nrs2\tC\t0.2\t0.1\t0.04\nrs3\t0\t0.1\t0.1\t0.3\n"
    path.write_bytes(gzip.compress(b"SNP\tA1\tBETA\tSE\tP\n" + rows.encode()))
    found = read_associations(path).aligned(["rs3", "rs2", "rs9", "rs1"], ["T", "G", "A", "A"])
    assert found.beta[[0, 1, 3]].tolist() == [0.1, -0.2, 0.5]
    assert np.isnan(found.beta[2])
    assert np.isnan(found.log10_p[2])
    assert found.log10_p[3] == -400.0


def test_a_table_without_its_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with pytest.raises(HanseError, match="cannot be read"):
        read_associations(path)
    path.write_text("SNP BETA\nrs1 1\n")
    with pytest.raises(HanseError, match="no column A1, P"):
        read_associations(path)
    path.write_text("SNP A1 P\nrs1 A\n")
    with pytest.raises(HanseError, match="2 of 3 columns"):
        read_associations(path)
