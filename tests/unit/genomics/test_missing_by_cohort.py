"""Missing genotypes that follow a cohort, where a covariate does too: which SNPs are collinear then."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import statsmodels.api as sm

from hanse_genomics.arrays import Arrays
from hanse_genomics.files.cohort import open_cohort
from hanse_genomics.reasons import Reason
from hanse_genomics.rehearsal import RehearsalVerbs
from hanse_genomics.site import STEPS, SiteStep, SiteStudy
from hanse_genomics.study import conduct
from hanse_privacy.joint import Computation, Fact
from hanse_schemas.study import Study
from plink_files import write_plink
from plink_oracle import Pool, a1, beside, federated, run, table, tool

STUDY = Study(test="logistic", covariates=("AGE", "BATCH"), ambiguous="keep")


def pool_of(folder: Path, copies: np.ndarray, cohort: np.ndarray, seed: int = 3) -> tuple[Pool, np.ndarray, np.ndarray]:
    """A pool in which every cohort has an age and a batch of its own; its covariates and statuses."""
    rng = np.random.default_rng(seed)
    people = len(cohort)
    age = np.array([35.0, 40.0, 75.0])[cohort] + rng.normal(0, 3, people)
    batch = np.array([0.0, 0.0, 1.0])[cohort] + rng.normal(0, 0.4, people)
    case = rng.integers(0, 2, people)
    listed = [f"F{at} I{at} 0 0 {1 + at % 2} {1 + case[at]}" for at in range(people)]
    prefix = write_plink(folder / "pool", copies, people=listed)
    lines = [f"F{at} I{at} {age[at]:.6g} {batch[at]:.6g}" for at in range(people)]
    Path(f"{prefix}.cov").write_text("\n".join(["FID IID AGE BATCH", *lines]) + "\n")
    snps = [("1", at + 1, f"rs{at}", "A", "G") for at in range(len(copies))]
    columns = np.column_stack([np.ones(people), np.round(age, 4), np.round(batch, 6)])
    return Pool(prefix, copies, snps, listed), columns, case


def awkward(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Copies of A1, (4, 600), and cohorts: rare and 30 % missing in the older cohort, the same of its other allele,
    common and missing in a whole cohort, and one without gaps.
    """
    rng = np.random.default_rng(seed)
    cohort = np.repeat([0, 1, 2], 200)
    copies = np.stack([rng.binomial(2, share, 600) for share in (0.02, 0.98, 0.3, 0.3)])
    copies[:2, (cohort == 2) & (rng.random(600) < 0.3)] = -1
    copies[2, cohort == 2] = -1
    return copies, cohort


def split(pool: Pool, cohort: np.ndarray, folder: Path) -> dict[str, Path]:
    """The pool's files by cohort, alleles as they are."""
    made = {}
    for number in range(3):
        own = np.flatnonzero(cohort == number)
        prefix = write_plink(folder / f"c{number}", pool.copies[:, own], people=[pool.people[at] for at in own])
        lines = Path(f"{pool.prefix}.cov").read_text().splitlines()
        Path(f"{prefix}.cov").write_text("\n".join([lines[0], *(lines[1 + at] for at in own)]) + "\n")
        made[f"c{number}"] = prefix
    return made


def inflation(predictors: np.ndarray) -> float:
    """The largest variance inflation factor of columns (n, q)."""
    return float(np.diag(np.linalg.inv(np.corrcoef(predictors.T))).max())


def test_a_snp_whose_gaps_follow_a_cohort_is_tested_as_in_the_pool(tmp_path: Path) -> None:
    copies, cohort = awkward(1)
    pool, columns, case = pool_of(tmp_path, copies, cohort)
    results = federated(STUDY, split(pool, cohort, tmp_path), tmp_path / "s").results
    for at, row in enumerate(copies):
        here = row >= 0
        counted = row if a1(results)[at] == "A" else 2 - row
        x = np.column_stack([columns[here], counted[here]])
        assert inflation(x[:, 1:]) < 50
        assert results["reason"][at] == Reason.TESTED
        fit = sm.Logit(case[here], x).fit(disp=0, maxiter=100, tol=1e-14)
        assert results["beta"][at] == pytest.approx(fit.params[-1], rel=1e-6)
        assert results["se"][at] == pytest.approx(fit.bse[-1], rel=1e-6)


@pytest.mark.skipif(tool("plink2") is None, reason="plink2 is not on the PATH nor in .tools/bin")
def test_collinear_snps_are_those_of_plink2(tmp_path: Path) -> None:
    """SNPs that say less and less of the batch, with gaps that follow it."""
    rng = np.random.default_rng(5)
    cohort = np.repeat([0, 1, 2], 200)
    pool, columns, _ = pool_of(tmp_path, np.zeros((1, 600), dtype=int), cohort)
    later = columns[:, 2] > np.median(columns[:, 2])
    copies = np.where(later, 2, 0) * np.ones((40, 1), dtype=int)
    changed = rng.random(copies.shape) < np.linspace(0.0, 0.08, 40)[:, None]
    copies[changed] = rng.integers(0, 3, int(changed.sum()))
    copies[rng.random(copies.shape) < np.where(columns[:, 1] > 60, 0.6, 0.02)] = -1
    batch = later + rng.normal(0, 0.02, 600)
    lines = [f"F{at} I{at} {columns[at, 1]:.6g} {batch[at]:.6g}" for at in range(600)]
    write_plink(pool.prefix, copies, people=pool.people)
    Path(f"{pool.prefix}.cov").write_text("\n".join(["FID IID AGE BATCH", *lines]) + "\n")
    pool = Pool(pool.prefix, copies, [("1", at + 1, f"rs{at}", "A", "G") for at in range(40)], pool.people)
    results = federated(STUDY, split(pool, cohort, tmp_path), tmp_path / "s").results
    run(
        "plink2", pool.prefix, tmp_path / "out", "--covar", f"{pool.prefix}.cov", "--glm", "no-firth", "hide-covar",
        "cols=+err",
    )  # fmt: skip
    told = table(tmp_path / "out.PHENO1.glm.logistic")["ERRCODE"]
    refused = [code in ("VIF_TOO_HIGH", "CORR_TOO_HIGH") for code in told]
    assert 3 < sum(refused) < 37
    assert (results["reason"] == Reason.COLLINEAR).tolist() == refused


def of_010(step: SiteStep) -> SiteStep:
    """A site's step as release 0.1.0 had it: it tells no version, and of no array that came later."""

    def answered(site: SiteStudy, settings: Mapping[str, Fact], given: Mapping[str, Arrays]) -> Arrays:
        made = step(site, settings, given)
        return {name: array for name, array in made.items() if name not in ("version", "present")}

    return answered


@pytest.mark.parametrize("older", [("c1",), ("c0", "c1", "c2")])
def test_a_study_with_sites_of_the_release_before_ends_with_what_these_can_tell(
    older: tuple[str, ...], tmp_path: Path
) -> None:
    copies, cohort = awkward(2)
    pool, _, _ = pool_of(tmp_path, copies, cohort)
    cohorts = split(pool, cohort, tmp_path)

    class Mixed(RehearsalVerbs):
        def _answer(self, name: str, asked: Computation) -> Arrays:
            with pytest.MonkeyPatch.context() as patched:
                if name in older:
                    for step in ("open", "logistic_first"):
                        patched.setitem(STEPS, step, of_010(STEPS[step]))
                return super()._answer(name, asked)

    opened = {name: open_cohort(prefix, STUDY, *beside(prefix)) for name, prefix in cohorts.items()}
    made = asyncio.run(conduct(Mixed(opened, STUDY, tmp_path / "s"), STUDY))["results"]
    assert made["reason"][3] == Reason.TESTED
