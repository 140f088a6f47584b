"""Swapped alleles, flipped strands and another order of SNPs in a cohort's files change no bit of the results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hanse_genomics.files import open_cohort
from hanse_genomics.rehearsal import rehearse
from hanse_schemas.study import Structure, Study
from plink_files import random_copies, write_plink

SNPS, PEOPLE = 300, 40
COMPLEMENT = {"A": "T", "C": "G", "G": "C", "T": "A"}
CHROMOSOMES = ["1"] * 280 + ["X"] * 15 + ["MT"] * 5
STUDIES = {
    "chi_square": Study(test="chi_square"),
    "trend": Study(test="trend"),
    "linear": Study(test="linear", phenotype="TRAIT", covariates=("AGE",)),
    "logistic": Study(test="logistic", covariates=("AGE",), sex=True),
    "structure": Study(test="linear", phenotype="TRAIT", structure=Structure(components=2, tolerance=1e-3)),
}


def _copies(cohort: int) -> np.ndarray:
    copies = random_copies(SNPS, PEOPLE, seed=cohort, missing=0.03)
    frequency = np.random.default_rng(9).uniform(0, 0.6, (SNPS, 1))
    drawn = np.random.default_rng(50 + cohort).binomial(2, frequency, copies.shape)
    return np.where(copies < 0, -1, drawn)


def _people(cohort: int) -> list[str]:
    rng = np.random.default_rng(90 + cohort)
    return [f"F{cohort} I{at} 0 0 {rng.integers(1, 3)} {rng.integers(1, 3)}" for at in range(PEOPLE)]


def _values(prefix: Path, cohort: int) -> None:
    rng = np.random.default_rng(70 + cohort)
    rows = [f"F{cohort} I{at} {rng.normal():.6f} {rng.normal():.4f}\n" for at in range(PEOPLE)]
    Path(f"{prefix}.values").write_text("FID IID TRAIT AGE\n" + "".join(rows))


@pytest.fixture(scope="module")
def prefixes(tmp_path_factory):
    """Three cohorts as they are, and the third one turned."""
    folder = tmp_path_factory.mktemp("turned")
    pairs = [list(np.random.default_rng(at).permutation(list(["AG", "AC", "GT", "CT"][at % 4]))) for at in range(SNPS)]
    listed: list[tuple[Any, ...]] = [
        (CHROMOSOMES[at], 10 + at // 2, f"rs{at}", *map(str, pairs[at])) for at in range(SNPS)
    ]
    for cohort in range(3):
        prefix = write_plink(folder / f"c{cohort}", _copies(cohort), snps=listed, people=_people(cohort))
        _values(prefix, cohort)
    rng = np.random.default_rng(4)
    swapped, flipped, order = rng.random(SNPS) < 0.5, rng.random(SNPS) < 0.4, rng.permutation(SNPS)
    copies = _copies(2)
    turned = np.where((copies >= 0) & swapped[:, None], 2 - copies, copies)
    rewritten = []
    for at, (chromosome, position, name, *alleles) in enumerate(listed):
        pair = alleles[::-1] if swapped[at] else alleles
        rewritten.append((chromosome, position, name, *([COMPLEMENT[a] for a in pair] if flipped[at] else pair)))
    prefix = write_plink(folder / "turned", turned[order], snps=[rewritten[at] for at in order], people=_people(2))
    _values(prefix, 2)
    backward = np.array([one > other for one, other in pairs])
    return (
        folder,
        int(flipped.sum()),
        (3 * int(backward.sum()), 2 * int(backward.sum()) + int((backward ^ swapped).sum())),
    )


@pytest.mark.parametrize("test", STUDIES)
def test_a_turned_cohort_gives_the_same_results_to_the_last_bit(prefixes, tmp_path, test):
    folder, flips, swaps = prefixes
    study = STUDIES[test]

    def run(third: str):
        files = {f"c{at}": folder / name for at, name in enumerate(("c0", "c1", third))}
        cohorts = {
            name: open_cohort(prefix, study, Path(f"{prefix}.values"), Path(f"{prefix}.values"))
            for name, prefix in files.items()
        }
        return rehearse(study, cohorts, tmp_path / third)

    straight, turned = run("c2"), run("turned")
    assert straight.results.keys() == turned.results.keys()
    for name, array in straight.results.items():
        assert array.tobytes() == turned.results[name].tobytes(), name
    assert np.isfinite(straight.results["p"]).sum() > SNPS * 0.9
    assert turned.summary["snps"]["common"] == SNPS
    told = str(turned.summary)
    assert f"'flipped': {flips}" in told
    assert [made.summary["snps"]["swapped"] for made in (straight, turned)] == list(swaps)
