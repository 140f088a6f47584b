"""Writes a simulated study: a PLINK fileset, .cov and .pheno for every cohort and for the pool."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hanse_genomics.simulation.genotypes import CausalSnp, causal_snps, frequencies, packed, tiles
from hanse_genomics.simulation.people import People, make_people
from hanse_genomics.simulation.plan import StudyPlan

POOLED = "pooled"
CASE, TRAIT = "CASE", "TRAIT"
_MAGIC = bytes((0x6C, 0x1B, 0x01))
_BASES = np.array(["A", "C", "T", "G"])
"""In an order in which neighbours are not each other's complement, so that no SNP's strand is in doubt."""
_COHORT = 9  # stream of random numbers for what differs between the cohorts' files


@dataclass(frozen=True, slots=True)
class Simulated:
    """Where it lies.

    Attributes:
        cohorts: by name, the prefix of its files: .bed, .bim, .fam, .cov, .pheno (columns CASE and TRAIT).
        pooled: the same of all cohorts together; None where it was not asked for.
    """

    cohorts: Mapping[str, Path]
    pooled: Path | None


def simulate(plan: StudyPlan, folder: Path, *, pooled_files: bool = True) -> Simulated:
    """Write the study's files, in bounded memory however many SNPs there are.

    Args:
        plan: what the study is made of.
        folder: made where it is missing; files are named by the cohorts.
        pooled_files: whether the whole pool is written, too: what PLINK is run on. It has every SNP, unswapped.
    """
    folder.mkdir(parents=True, exist_ok=True)
    people = make_people(plan)
    p = frequencies(plan)
    causal = causal_snps(plan, people, p)
    rng = np.random.Generator(np.random.PCG64([plan.seed, _COHORT]))
    trait = people.scores + sum(c.copies * c.effect.trait for c in causal.values()) + rng.standard_normal(plan.samples)
    present = rng.random(plan.samples) >= plan.missing_phenotypes
    known = rng.random((plan.samples, len(plan.covariates))) >= plan.missing_covariates / max(len(plan.covariates), 1)
    bim = _bim(plan, rng)
    parts: list[_Part] = []
    for index, cohort in enumerate(plan.cohorts):
        swapped, kept = rng.random(plan.snps) < plan.swapped, rng.random(plan.snps) >= plan.absent
        parts.append(_Part(folder / cohort.name, np.flatnonzero(people.cohort == index), swapped, kept))
    if pooled_files:
        parts.append(
            _Part(folder / POOLED, np.arange(plan.samples), np.zeros(plan.snps, bool), np.ones(plan.snps, bool))
        )
    for part in parts:
        _write_people(part, plan, people, trait, present, known, rng)
        _write_bim(part, bim)
    _write_beds(parts, plan, people, p, causal)
    prefixes = {cohort.name: part.prefix for cohort, part in zip(plan.cohorts, parts, strict=False)}
    return Simulated(prefixes, parts[-1].prefix if pooled_files else None)


@dataclass(frozen=True, slots=True)
class _Part:
    prefix: Path
    rows: NDArray[np.int64]  # of the pool; contiguous
    swapped: NDArray[np.bool_]
    kept: NDArray[np.bool_]

    def path(self, ending: str) -> Path:
        return self.prefix.with_name(self.prefix.name + ending)


def _bim(plan: StudyPlan, rng: np.random.Generator) -> list[tuple[str, str, str]]:
    """Chromosome with name and position, A1, A2 of every SNP, spread evenly over the autosomes."""
    chromosome = np.arange(plan.snps) * 22 // plan.snps + 1
    first = rng.integers(0, 4, plan.snps)
    second = (first + rng.choice([1, 3], plan.snps)) % 4
    starts = np.searchsorted(chromosome, np.arange(1, 23))
    place = (np.arange(plan.snps) - starts[chromosome - 1] + 1) * 1000
    names = [f"{c}\trs{i}\t0\t{at}" for i, (c, at) in enumerate(zip(chromosome, place, strict=True))]
    return list(zip(names, _BASES[first].tolist(), _BASES[second].tolist(), strict=True))


def _write_bim(part: _Part, bim: list[tuple[str, str, str]]) -> None:
    with part.path(".bim").open("w") as file:
        for (place, a1, a2), swapped, kept in zip(bim, part.swapped.tolist(), part.kept.tolist(), strict=True):
            if kept:
                file.write(f"{place}\t{a2}\t{a1}\n" if swapped else f"{place}\t{a1}\t{a2}\n")


def _write_people(
    part: _Part,
    plan: StudyPlan,
    people: People,
    trait: NDArray[np.float64],
    present: NDArray[np.bool_],
    known: NDArray[np.bool_],
    rng: np.random.Generator,
) -> None:
    """The .fam, and .cov and .pheno in another order, so that no reader can rely on the order."""
    status = np.where(present, np.where(people.case, 2, 1), -9)
    with part.path(".fam").open("w") as fam:
        for row in part.rows.tolist():
            fam.write(f"F{row} I{row} 0 0 {people.sex[row]} {status[row]}\n")
    shuffled = rng.permutation(part.rows).tolist()
    with part.path(".pheno").open("w") as pheno:
        pheno.write(f"FID IID {CASE} {TRAIT}\n")
        for row in shuffled:
            pheno.write(f"F{row} I{row} {status[row]} {f'{trait[row]:.6f}' if present[row] else -9}\n")
    with part.path(".cov").open("w") as cov:
        cov.write(" ".join(("FID", "IID", *plan.covariate_names)) + "\n")
        for row in shuffled:
            values = [f"{v:.6g}" if k else "-9" for v, k in zip(people.covariates[row], known[row], strict=True)]
            cov.write(" ".join((f"F{row}", f"I{row}", *values)) + "\n")


def _write_beds(
    parts: list[_Part], plan: StudyPlan, people: People, p: NDArray[np.float64], causal: dict[int, CausalSnp]
) -> None:
    with ExitStack() as stack:
        files = [stack.enter_context(part.path(".bed").open("wb")) for part in parts]
        for file in files:
            file.write(_MAGIC)
        for start, high, low in tiles(plan, people, p, causal):
            here = slice(start, start + len(high))
            for part, file in zip(parts, files, strict=True):
                if not len(part.rows):
                    continue
                ours = slice(int(part.rows[0]), int(part.rows[-1]) + 1)
                packs = packed(high[:, ours], low[:, ours], part.swapped[here])
                file.write(packs[part.kept[here]].tobytes())
