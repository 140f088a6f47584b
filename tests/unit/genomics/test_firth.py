"""Firth's regression where the SNP separates the cases: a finite estimate, and the one that makes the score 0."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import fsolve

from hanse_genomics.arrays import Arrays, Floats
from hanse_genomics.hub import firth
from hanse_genomics.hub.ascent import Ascent, ascend
from hanse_genomics.reasons import Reason
from hanse_genomics.statistics.symmetric import packed, packed_size, thirds
from hanse_schemas.study import Study
from plink_files import write_plink
from plink_oracle import a1, federated, run, table, tool

SNPS = ("separating", "equal", "all but one", "absent in cases", "three cases", "one case")


def copies_of(case: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(6, n): how SNPs separate cases from controls, by `SNPS`."""
    few = np.flatnonzero(case)[:3]
    equal = np.where(case, 2, 0)
    nearly = equal.copy()
    nearly[few[0]] = 1
    return np.stack([
        np.where(case, rng.integers(1, 3, len(case)), 0), equal, nearly,
        np.where(case, 0, rng.integers(0, 3, len(case))),
        np.isin(np.arange(len(case)), few).astype(int), (np.arange(len(case)) == few[0]).astype(int),
    ])  # fmt: skip


def made(
    folder: Path, people: int, covariates: int, share: float, seed: int, times: int = 1
) -> tuple[dict[str, Path], Floats, Floats]:
    """Three cohorts' files; y (n,), and 1 and the covariates (n, 1 + q)."""
    rng = np.random.default_rng(seed)
    case = rng.random(people) < share
    values = rng.normal(size=(people, covariates)).round(5)
    copies = np.tile(copies_of(case, rng), (times, 1))
    names = [f"C{at}" for at in range(covariates)]
    cohorts = {}
    for number, own in enumerate(np.array_split(np.arange(people), 3)):
        write(folder / f"c{number}", copies[:, own], own, case, values, names)
        cohorts[f"c{number}"] = folder / f"c{number}"
    write(folder / "pool", copies, np.arange(people), case, values, names)
    return cohorts, case.astype(np.float64), np.column_stack([np.ones(people), values])


def write(
    prefix: Path, copies: np.ndarray, own: np.ndarray, case: np.ndarray, values: Floats, names: list[str]
) -> None:
    write_plink(prefix, copies, people=[f"F I{at} 0 0 {1 + at % 2} {1 + int(case[at])}" for at in own])
    lines = [f"F I{at} {' '.join(map(str, values[at]))}" for at in own]
    Path(f"{prefix}.cov").write_text("\n".join([f"#FID IID {' '.join(names)}", *lines]) + "\n")


def score(beta: Floats, x: Floats, y: Floats) -> Floats:
    """Of the penalised likelihood (Heinze and Schemper 2002, equation 2)."""
    p = 1 / (1 + np.exp(-x @ beta))
    w = p * (1 - p)
    h = w * np.einsum("ij,jk,ik->i", x, np.linalg.inv((x * w[:, None]).T @ x), x)
    return x.T @ (y - p + h * (0.5 - p))


def textbook(x: Floats, y: Floats) -> Floats:
    """Where the score is 0: by the textbook's iterations until they are near, then by a solver of equations."""
    beta = np.zeros(x.shape[1])
    for _ in range(400):
        p = 1 / (1 + np.exp(-x @ beta))
        w = p * (1 - p)
        beta = beta + 0.5 * np.linalg.solve((x * w[:, None]).T @ x, score(beta, x, y))
    solved: Floats = fsolve(score, beta, args=(x, y), xtol=1e-13)
    assert np.abs(score(solved, x, y)).max() < 1e-9
    return solved


@pytest.mark.parametrize(
    ("people", "covariates", "share"), [(360, 1, 0.5), (1200, 1, 0.5), (600, 4, 0.3), (900, 2, 0.1)]
)
def test_a_snp_that_separates_the_cases_has_the_estimate_that_makes_the_score_zero(
    people: int, covariates: int, share: float, tmp_path: Path
) -> None:
    cohorts, y, z = made(tmp_path, people, covariates, share, seed=people)
    study = Study(test="logistic", covariates=tuple(f"C{at}" for at in range(covariates)), firth="fallback")
    results = federated(study, cohorts, tmp_path / "s").results
    assert results["reason"].tolist() == [Reason.TESTED] * len(SNPS)
    assert results["firth"].all()
    copies = copies_of(y == 1, rng_after(people, covariates))
    for at, name in enumerate(SNPS):
        if covariates > 1 and name in ("equal", "all but one"):
            continue  # With several covariates, a SNP that is the phenotype has several maxima.
        x = np.column_stack([z, copies[at] if a1(results)[at] == "A" else 2 - copies[at]])
        beta = textbook(x, y)
        p = 1 / (1 + np.exp(-x @ beta))
        se = np.sqrt(np.linalg.inv((x * (p * (1 - p))[:, None]).T @ x)[-1, -1])
        assert results["beta"][at] == pytest.approx(beta[-1], abs=2e-7 * se), name
        assert results["se"][at] == pytest.approx(se, rel=1e-6), name


def rng_after(people: int, covariates: int) -> np.random.Generator:
    """The generator of `made`, when it has drawn cases and covariates."""
    rng = np.random.default_rng(people)
    rng.random(people)
    rng.normal(size=(people, covariates))
    return rng


def test_a_step_of_a_snp_is_the_same_bits_alone_and_beside_others() -> None:
    rng = np.random.default_rng(5)
    snps, k = 40, 4
    roots = rng.normal(size=(snps, 9, k))
    information = packed(roots.swapaxes(1, 2) @ roots)
    m = packed_size(k - 1)
    inner = [at for at, (_, column) in enumerate(zip(*np.triu_indices(k), strict=True)) if column < k - 1]
    outer = [at for at in range(packed_size(k)) if at not in inner]
    laid = np.concatenate([information[:, inner], information[:, outer]], axis=1)
    assert laid.shape[1] == m + k
    sums = np.concatenate([laid, rng.normal(size=(snps, k)), rng.normal(size=(snps, m + k))], axis=1)
    third = rng.normal(size=(snps, 1 + thirds(k)))
    together = ascend(sums, third, np.zeros((snps, k)))
    assert together.definite.all()
    for at in range(snps):
        alone = ascend(sums[at : at + 1], third[at : at + 1], np.zeros((1, k)))
        for name in Ascent.__slots__:
            assert getattr(alone, name)[0].tobytes() == getattr(together, name)[at].tobytes(), (at, name)


def test_snps_that_wait_for_room_have_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cohorts, _, _ = made(tmp_path, 120, 1, 0.5, seed=5, times=90)
    study = Study(test="logistic", covariates=("C0",), firth="always")

    def bits(folder: str) -> Arrays:
        found = federated(study, cohorts, tmp_path / folder).results
        return {name: found[name].tobytes() for name in ("beta", "se", "iterations", "reason")}  # type: ignore[misc]

    together = bits("together")
    monkeypatch.setattr(firth, "AT_ONCE", 1)
    assert bits("alone") == together


@pytest.mark.skipif(tool("plink2") is None, reason="plink2 is not on the PATH nor in .tools/bin")
def test_the_estimate_is_plink2s_where_plink2_comes_to_its_end(tmp_path: Path) -> None:
    cohorts, _, _ = made(tmp_path, 200, 1, 0.5, seed=4)
    results = federated(
        Study(test="logistic", covariates=("C0",), firth="fallback"), cohorts, tmp_path / "s"
    ).results  # fmt: skip
    run(
        "plink2", tmp_path / "pool", tmp_path / "out", "--covar", str(tmp_path / "pool.cov"), "--glm", "firth",
        "hide-covar", "cols=+beta,+err",
    )  # fmt: skip
    theirs = table(tmp_path / "out.PHENO1.glm.firth")
    compared = 0
    for at, code in enumerate(theirs["ERRCODE"]):
        if code == ".":
            sign = 1 if theirs["A1"][at] == a1(results)[at] else -1
            difference = sign * float(theirs["BETA"][at]) - results["beta"][at]
            assert abs(difference) < 0.01 * results["se"][at], SNPS[at]
            compared += 1
    assert compared >= 3
