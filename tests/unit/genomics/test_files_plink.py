"""Whom PLINK counts, we count: unknown sex, missing codes, negative positions, persons in another order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hanse_genomics.files import Cohort, open_cohort
from hanse_genomics.genotypes import count, group
from hanse_genomics.site.opening import offered
from hanse_schemas.study import Study
from plink_files import random_copies, write_plink
from plink_oracle import only, run, table, tool

pytestmark = pytest.mark.skipif(tool("plink1.9") is None, reason="plink1.9 is not installed")

SNPS, PEOPLE = 12, 90


def _counts(cohort: Cohort, members: np.ndarray) -> list[str]:
    """By SNP the genotypes as PLINK's --model prints them: two, one and no copies of A1."""
    found = count(cohort.packed(slice(None)), group(members))[:, 0]
    return [f"{two}/{one}/{none}" for none, one, two, _ in found.tolist()]


def test_cases_and_controls_are_plinks(tmp_path):
    rng = np.random.default_rng(8)
    sexes = rng.choice(["1", "2", "0", "-9", "other"], PEOPLE, p=[0.4, 0.4, 0.1, 0.05, 0.05])
    status = rng.choice(["1", "2", "0", "-9", "NA", "-9.0"], PEOPLE, p=[0.4, 0.4, 0.05, 0.05, 0.05, 0.05])
    people = [f"F{at} I{at} 0 0 {sexes[at]} {status[at]}" for at in range(PEOPLE)]
    copies = random_copies(SNPS, PEOPLE, seed=8)
    snps = [("1", 10 * at if at != 4 else -40, f"rs{at}", "A", "G") for at in range(1, SNPS + 1)]
    prefix = write_plink(tmp_path / "p", copies, snps=snps, people=people)
    run("plink1.9", prefix, tmp_path / "out", "--model", "--keep-allele-order", "--cell", "0")
    theirs = only(table(tmp_path / "out.model"), "TEST", "GENO")
    cohort = open_cohort(prefix, Study(test="chi_square"))
    placed = [name for name in cohort.snps.name if name != "rs4"]
    assert theirs["SNP"] == placed
    assert offered(cohort.snps)["left_out"].tolist() == [0, 1]
    for column, status_code in (("AFF", 1), ("UNAFF", 0)):
        ours = dict(zip(cohort.snps.name, _counts(cohort, cohort.phenotype == status_code), strict=True))
        assert [ours[name] for name in placed] == theirs[column]


def test_missing_values_of_phenotypes_and_covariates_are_plinks(tmp_path):
    rng = np.random.default_rng(9)
    prefix = write_plink(tmp_path / "p", random_copies(SNPS, PEOPLE, seed=9, missing=0.05))
    missing = ["-9", "NA", "na", "-9.0", "-9.00"]  # PLINK takes nan for a number; for us it is missing

    def word() -> str:
        return missing[rng.integers(5)] if rng.random() < 0.2 else f"{rng.normal():.5f}"

    for ending, names in (("pheno", "TRAIT"), ("cov", "AGE DOSE")):
        lines = [
            f"F{at} I{at} {' '.join(word() for _ in names.split())}\n" for at in rng.permutation(PEOPLE)[: PEOPLE - 6]
        ]
        Path(f"{prefix}.{ending}").write_text(f"FID IID {names}\n" + "".join(lines))
    files = ["--pheno", f"{prefix}.pheno", "--pheno-name", "TRAIT", "--covar", f"{prefix}.cov"]
    run("plink1.9", prefix, tmp_path / "out", *files, "--linear", "hide-covar")
    study = Study(test="linear", phenotype="TRAIT", covariates=("AGE", "DOSE"))
    cohort = open_cohort(prefix, study, Path(f"{prefix}.pheno"), Path(f"{prefix}.cov"))
    complete = ~np.isnan(np.column_stack([cohort.phenotype, cohort.covariates])).any(axis=1)
    tested = count(cohort.packed(slice(None)), group(complete))[:, 0, :3].sum(axis=1)
    assert [str(number) for number in tested] == table(tmp_path / "out.assoc.linear")["NMISS"]
