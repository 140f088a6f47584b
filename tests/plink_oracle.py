"""PLINK as the oracle: pools of made-up people as PLINK files, cut into cohorts; and tables laid beside each other."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hanse_genomics.arrays import Arrays
from hanse_genomics.files import text
from hanse_genomics.files.cohort import open_cohort
from hanse_genomics.rehearsal import Rehearsed, rehearse
from hanse_genomics.results.numbers import plink_texts
from hanse_schemas.study import Study
from plink_files import write_plink

TOOLS = Path(__file__).parents[1] / ".tools" / "bin"

Table = dict[str, list[str]]


def tool(name: str) -> str | None:
    """Where plink1.9 or plink2 is."""
    return shutil.which(name) or shutil.which(name, path=str(TOOLS))


def run(name: str, prefix: Path, out: Path, *arguments: str) -> None:
    """Run PLINK on files."""
    program = tool(name)
    assert program is not None
    subprocess.run(
        [program, "--bfile", str(prefix), "--out", str(out), "--threads", "1", *arguments],
        check=True, capture_output=True, timeout=100,
    )  # fmt: skip


def table(path: Path) -> Table:
    """A table of words, by column."""
    rows = [line.split() for line in path.read_text().splitlines()]
    return {name: [row[at] for row in rows[1:]] for at, name in enumerate(rows[0])}


def only(of: Table, column: str, word: str) -> Table:
    """The lines that have a word."""
    keep = [at for at, found in enumerate(of[column]) if found == word]
    return {name: [words[at] for at in keep] for name, words in of.items()}


def a1(results: Arrays) -> list[str]:
    """A1 by SNP."""
    first, second = text.unpack(results["first"]), text.unpack(results["second"])
    return [two if minor else one for one, two, minor in zip(first, second, results["minor"], strict=True)]


def differences(results: Arrays, theirs: Table, columns: Mapping[str, str], *, ties: bool = False) -> list[str]:
    """Where a printed digit differs from PLINK's, for every SNP where PLINK has a number.

    Args:
        columns: ours by PLINK's.
        ties: SNPs whose alleles are equally frequent may have the other A1; they are left out then.
    """
    names, own = text.unpack(results["name"]), a1(results)
    row = {name: at for at, name in enumerate(theirs["SNP"])}
    found = []
    for word, ours in {"A1": None, **columns}.items():
        if word not in theirs:
            continue
        mine = own if ours is None else plink_texts(np.asarray(results[ours], dtype=np.float64)).tolist()
        for at, name in enumerate(names):
            if name not in row or (ties and results["maf"][at] == 0.5):
                continue
            other = theirs[word][row[name]]
            if word == "A1" and other == "0":
                continue
            if other != "NA" and mine[at] != other:
                found.append(f"{name} {word}: {mine[at]}, PLINK {other}, reason {int(results['reason'][at])}")
    return found


def beyond_single_precision(results: Arrays, theirs: Table) -> list[str]:
    """Where BETA, STAT or P of PLINK's logistic regression is further off than its single precision explains: more than
    one unit of the last printed digit, and more than 1e-5 of a standard error. P moves with STAT.
    """
    row = {name: at for at, name in enumerate(theirs["SNP"])}
    found = []
    for at, name in enumerate(text.unpack(results["name"])):
        if name not in row or theirs["P"][row[name]] == "NA":
            continue
        se, stat = float(results["se"][at]), float(results["stat"][at])
        slack = {"BETA": 1e-5 * se, "STAT": 1e-5, "P": 1e-5 * max(abs(stat), 1.0) * float(results["p"][at])}
        for word, ours in (("BETA", "beta"), ("STAT", "stat"), ("P", "p")):
            mine, other = float(results[ours][at]), float(theirs[word][row[name]])
            unit = 10.0 ** (np.floor(np.log10(abs(other))) - 3) if other else 0.0
            # Half a unit is the rounding of what is printed.
            if not abs(mine - other) <= max(unit, slack[word]) + 0.5 * unit:
                found.append(f"{name} {word}: {mine:.6g}, PLINK {other:g}, reason {int(results['reason'][at])}")
    return found


@dataclass(frozen=True)
class Pool:
    """People in one fileset.

    Attributes:
        prefix: of .bed, .bim, .fam, .cov and .pheno (columns CASE, TRAIT).
        copies: of A1, (S, n), -1 where missing; snps, people: lines as `write_plink` has them.
    """

    prefix: Path
    copies: np.ndarray
    snps: list[tuple[str, int, str, str, str]]
    people: list[str]

    @classmethod
    def read(cls, prefix: Path) -> Pool:
        """From files."""
        lines = Path(f"{prefix}.bim").read_text().split("\n")[:-1]
        words = [line.split() for line in lines]
        people = Path(f"{prefix}.fam").read_text().split("\n")[:-1]
        raw = np.frombuffer(Path(f"{prefix}.bed").read_bytes(), dtype=np.uint8)[3:].reshape(len(words), -1)
        codes = (raw[:, :, None] >> np.array([0, 2, 4, 6]) & 3).reshape(len(words), -1)[:, : len(people)]
        copies = np.array([2, -1, 1, 0])[codes]
        return cls(prefix, copies, [(c, int(bp), name, one, two) for c, name, _, bp, one, two in words], people)

    def cohorts(self, folder: Path, count: int, *, seed: int = 0) -> dict[str, Path]:
        """Cut the pool at random into cohorts of uneven sizes, some SNPs with A1 and A2 exchanged."""
        rng = np.random.default_rng(seed)
        share = np.arange(1, count + 1) ** 1.3
        which = rng.choice(count, size=len(self.people), p=share / share.sum())
        made = {}
        for cohort in range(count):
            own = np.flatnonzero(which == cohort)
            swap = rng.random(len(self.snps)) < 0.3
            copies = self.copies[:, own]
            copies = np.where(swap[:, None] & (copies >= 0), 2 - copies, copies)
            snps = [
                (c, bp, name, two, one) if turned else (c, bp, name, one, two)
                for (c, bp, name, one, two), turned in zip(self.snps, swap.tolist(), strict=True)
            ]
            prefix = folder / f"cohort{cohort}"
            write_plink(prefix, copies, snps=snps, people=[self.people[at] for at in own])
            chosen = {tuple(self.people[at].split()[:2]) for at in own}
            for ending in ("cov", "pheno"):
                if Path(f"{self.prefix}.{ending}").exists():
                    head, *lines = Path(f"{self.prefix}.{ending}").read_text().splitlines()
                    kept = [head, *(line for line in lines if tuple(line.split()[:2]) in chosen)]
                    Path(f"{prefix}.{ending}").write_text("\n".join(kept) + "\n")
            made[f"site{cohort}"] = prefix
        return made


def make_pool(
    folder: Path, *, snps: int = 200, samples: int = 500, seed: int = 0, chromosomes: Sequence[str] = ("1",)
) -> Pool:
    """A pool with everything that is awkward: missing genotypes, phenotypes and covariates, covariates of very
    different scales, monomorphic and rare SNPs, non-founders, people without a sex, men who are heterozygous on X.
    """
    rng = np.random.default_rng(seed)
    frequency = rng.uniform(0.02, 0.6, snps)
    frequency[::17], frequency[5::23], frequency[7::29] = 0.004, 0.0, 1.0
    copies = rng.binomial(2, frequency[:, None], (snps, samples))
    sex = rng.choice([1, 2, 0], samples, p=[0.49, 0.49, 0.02])
    age = rng.normal(60, 9, samples)
    dose, count = age * 2e-7 + rng.normal(0, 2e-6, samples), rng.normal(3e6, 1e6, samples)
    risk = 0.9 * copies[3] + 0.03 * (age - 60) + 0.4 * (sex == 1) - 1.2
    case = np.where(rng.random(samples) < 1 / (1 + np.exp(-risk)), 2, 1)
    trait = 0.5 * copies[3] + 0.02 * age + 2e5 * dose + rng.normal(0, 1, samples)
    missing = np.where(rng.random(snps) < 0.3, 0.0, rng.uniform(0, 0.08, snps))
    known = np.where(rng.random((snps, samples)) < missing[:, None], -1, copies)
    listed = [(chromosomes[at * len(chromosomes) // snps], 1000 + at, f"rs{at}", "A", "C") for at in range(snps)]
    for at, snp in enumerate(listed):
        if snp[0] in ("23", "24", "26"):
            male = sex == 1 if snp[0] != "26" else np.ones(samples, dtype=bool)
            odd = rng.random(samples) < 0.02
            known[at, male & ~odd & (known[at] == 1)] = 2
    people = []
    for at in range(samples):
        father = f"I{at - 1}" if at % 11 == 5 else "0"
        people.append(f"F{at // 11} I{at} {father} 0 {sex[at]} {case[at]}")
    prefix = write_plink(folder / "pool", known, snps=listed, people=people)
    phenotypes, covariates = ["FID IID CASE TRAIT"], ["FID IID AGE DOSE COUNT"]
    for at, person in enumerate(people):
        ids = " ".join(person.split()[:2])
        status, quantity = ("-9", "-9") if rng.random() < 0.03 else (str(case[at]), f"{trait[at]:.6g}")
        phenotypes.append(f"{ids} {status} {quantity}")
        cells = [f"{value:.7g}" if rng.random() > 0.01 else "-9" for value in (age[at], dose[at], count[at])]
        covariates.append(f"{ids} {' '.join(cells)}")
    Path(f"{prefix}.pheno").write_text("\n".join(phenotypes) + "\n")
    Path(f"{prefix}.cov").write_text("\n".join(covariates) + "\n")
    return Pool(prefix, known, listed, people)


def beside(prefix: Path) -> tuple[Path | None, Path | None]:
    """The .pheno and .cov files of a prefix, where there are any."""
    phenotypes, covariates = (Path(f"{prefix}.{ending}") for ending in ("pheno", "cov"))
    return phenotypes if phenotypes.exists() else None, covariates if covariates.exists() else None


def federated(study: Study, cohorts: Mapping[str, Path], state: Path) -> Rehearsed:
    """The study over cohorts whose phenotypes and covariates lie beside their files."""
    opened = {name: open_cohort(prefix, study, *beside(prefix)) for name, prefix in cohorts.items()}
    return rehearse(study, opened, state)
