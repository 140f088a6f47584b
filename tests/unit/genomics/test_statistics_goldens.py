"""Every printed digit is PLINK 1.9's on the pooled files: of a pool with all that is awkward, and of hapmap1, both cut
into cohorts. The tables are PLINK's own (tests/data/gwas/make_goldens.py).
"""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from hanse_genomics.files import text
from hanse_genomics.files.cohort import open_cohort
from hanse_genomics.rehearsal import Rehearsed, rehearse
from hanse_schemas.study import QualityControl, Study
from plink_oracle import Pool, Table, beyond_single_precision, differences, federated, only

DATA = Path(__file__).parents[2] / "data"
HAPMAP = DATA / "hapmap1"
ALL = ("AGE", "DOSE", "COUNT")


def golden(name: str) -> Table:
    rows = [line.split() for line in gzip.decompress((DATA / "gwas" / f"{name}.gz").read_bytes()).decode().splitlines()]
    return {column: [row[at] for row in rows[1:]] for at, column in enumerate(rows[0])}


@pytest.fixture(scope="module")
def pool() -> Pool:
    return Pool.read(DATA / "gwas" / "pool")


def of_pool(pool: Pool, folder: Path, count: int, **study: object) -> Rehearsed:
    asked = Study.model_validate({"few_cohorts": True, **study})
    return federated(asked, pool.cohorts(folder, count, seed=count), folder / "state")


@pytest.mark.parametrize("cohorts", [2, 3, 8])
def test_the_allelic_test_its_counts_and_quality_measures_are_plinks(pool: Pool, tmp_path: Path, cohorts: int) -> None:
    results = of_pool(pool, tmp_path, cohorts, test="chi_square", phenotype="CASE").results
    columns = {"F_A": "f_a", "F_U": "f_u", "CHISQ": "chisq", "P": "p", "OR": "odds_ratio"}
    assert differences(results, golden("assoc"), columns) == []
    assert differences(results, golden("frq"), {"MAF": "maf"}) == []
    assert differences(results, golden("lmiss"), {"F_MISS": "missing"}) == []
    # PLINK prints Hardy-Weinberg of Y and MT, too, as if everybody had two of them.
    diploid = only(golden("hwe"), "TEST", "UNAFF")
    keep = [at for at, chromosome in enumerate(diploid["CHR"]) if chromosome not in ("24", "26")]
    diploid = {column: [words[at] for at in keep] for column, words in diploid.items()}
    assert differences(results, diploid, {"P": "hwe_p"}) == []


def test_the_trend_test_is_plinks(pool: Pool, tmp_path: Path) -> None:
    """Its counts, too, which on chromosome X are of women alone, as the test is."""
    results, theirs = of_pool(pool, tmp_path, 4, test="trend", phenotype="CASE").results, golden("model")
    assert differences(results, theirs, {"CHISQ": "chisq", "P": "p"}) == []
    printed = {
        name: (f"{row[0]:.0f}/{row[1]:.0f}", f"{row[2]:.0f}/{row[3]:.0f}")
        for name, row in zip(text.unpack(results["name"]), results["counts"].tolist(), strict=True)
    }
    wanted = dict(zip(theirs["SNP"], zip(theirs["AFF"], theirs["UNAFF"], strict=True), strict=True))
    assert theirs["CHR"].count("23") > 10
    assert {name: printed[name] for name in wanted} == wanted


@pytest.mark.parametrize(("covariates", "table"), [((), "linear"), (ALL, "linear-covar")])
def test_linear_regression_is_plinks(pool: Pool, tmp_path: Path, covariates: tuple[str, ...], table: str) -> None:
    results = of_pool(pool, tmp_path, 3, test="linear", phenotype="TRAIT", covariates=covariates).results
    columns = {"NMISS": "nmiss", "BETA": "beta", "STAT": "stat", "P": "p"}
    assert differences(results, golden(table), columns) == []


@pytest.mark.parametrize(("covariates", "table"), [((), "logistic"), (("AGE",), "logistic-covar")])
def test_logistic_regression_is_plinks_within_its_single_precision(
    pool: Pool, tmp_path: Path, covariates: tuple[str, ...], table: str
) -> None:
    results = of_pool(pool, tmp_path, 5, test="logistic", phenotype="CASE", covariates=covariates).results
    theirs = golden(table)
    assert differences(results, theirs, {"NMISS": "nmiss"}) == []
    assert len(differences(results, theirs, {"BETA": "beta", "STAT": "stat", "P": "p"})) <= 30
    separated = [
        name for name, reason in zip(text.unpack(results["name"]), results["reason"], strict=True) if reason == 8
    ]
    found = beyond_single_precision(results, theirs)
    # Where cases and controls are told apart PLINK prints where it stopped on the way to infinity.
    assert [line for line in found if line.split()[0] not in separated] == []


def test_quality_control_keeps_the_snps_that_plink_keeps(pool: Pool, tmp_path: Path) -> None:
    quality = QualityControl(maf=0.05, missing=0.05, hardy_weinberg=0.05)
    made = of_pool(pool, tmp_path, 3, test="chi_square", phenotype="CASE", quality=quality.model_dump())
    names = text.unpack(made.results["name"])
    kept = {name for name, reason in zip(names, made.results["reason"], strict=True) if reason not in (1, 2, 3)}
    theirs = golden("kept")
    assert kept == {next(iter(theirs)), *next(iter(theirs.values()))}
    assert sum(made.summary["quality"].values()) == len(names) - len(kept)


@pytest.mark.parametrize(
    ("study", "table", "columns"),
    [
        ({"test": "chi_square"}, "assoc", {"F_A": "f_a", "F_U": "f_u", "CHISQ": "chisq", "P": "p", "OR": "odds_ratio"}),
        ({"test": "trend"}, "model", {"CHISQ": "chisq", "P": "p"}),
        ({"test": "linear", "phenotype": "pheno", "covariates": ("Age", "Smoking")}, "linear",
         {"NMISS": "nmiss", "BETA": "beta", "STAT": "stat", "P": "p"}),
        ({"test": "logistic", "covariates": ("Age", "Smoking")}, "logistic", {"NMISS": "nmiss"}),
    ],
)  # fmt: skip
def test_hapmap1_of_two_cohorts_is_plinks_table_of_the_whole(
    tmp_path: Path, study: dict[str, object], table: str, columns: dict[str, str]
) -> None:
    asked = Study.model_validate({"few_cohorts": True, **study})
    cohorts = {}
    for number in (1, 2):
        prefix = HAPMAP / f"client{number}" / f"hapmap1_100_{number}"
        phenotypes = Path(f"{prefix}_quant.pheno") if asked.phenotype else None
        cohorts[f"client{number}"] = open_cohort(prefix, asked, phenotypes, Path(f"{prefix}.cov"))
    results = rehearse(asked, cohorts, tmp_path).results
    theirs = golden(f"hapmap1-{table}")
    assert differences(results, theirs, columns, ties=True) == []
    ties = np.flatnonzero(results["maf"] == 0.5)
    assert len(ties) <= 2
    if table == "logistic":
        names = text.unpack(results["name"])
        untested = {name for name, reason in zip(names, results["reason"], strict=True) if reason}
        tied = {names[at] for at in ties}
        found = [line for line in beyond_single_precision(results, theirs) if line.split()[0] not in untested | tied]
        assert found == []
