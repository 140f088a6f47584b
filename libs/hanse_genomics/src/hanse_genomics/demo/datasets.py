"""The demonstration's two data sets: a simulated study whose cohorts have uneven shares of cases, and hapmap1.

In the simulated one an effect is found by all samples together and not by cohorts that are nearly all cases or nearly
all controls: that is what meta-analysis loses.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np

from hanse_genomics.simulation import Causal, CohortPlan, Covariate, StudyPlan, simulate
from hanse_schemas.study import Study

TESTS = ("chi_square", "linear", "logistic")
SNPS = 4000
_HAPMAP = "hapmap1"
_SHARES = {"bremen": (12, 8), "hamburg": (7, 13), "luebeck": (3, 17)}
"""Of hapmap1's 22 cases and 38 controls, by cohort."""


@dataclass(frozen=True, slots=True)
class Files:
    """One cohort's: the prefix of .bed, .bim and .fam; .pheno and .cov have the same."""

    prefix: Path

    @property
    def phenotypes(self) -> Path:
        return Path(f"{self.prefix}.pheno")

    @property
    def covariates(self) -> Path:
        return Path(f"{self.prefix}.cov")


@dataclass(frozen=True, slots=True)
class Dataset:
    """Cohorts, the same people pooled, and what is studied.

    Attributes:
        shares: cases and controls by cohort, for people to read.
        studies: by test.
    """

    name: str
    cohorts: dict[str, Files]
    pooled: Files
    shares: dict[str, tuple[int, int]]
    studies: dict[str, Study]

    def as_json(self) -> dict[str, Any]:
        """For other programs; paths and studies as JSON has them."""
        return {
            "name": self.name,
            "cohorts": {name: str(found.prefix) for name, found in self.cohorts.items()},
            "pooled": str(self.pooled.prefix),
            "shares": {name: list(pair) for name, pair in self.shares.items()},
            "schema": {
                "kind": "genotypes",
                "phenotypes": sorted({study.phenotype for study in self.studies.values() if study.phenotype}),
                "covariates": sorted({name for study in self.studies.values() for name in study.covariates}),
            },
            "studies": {test: study.model_dump(mode="json") for test, study in self.studies.items()},
        }

    @classmethod
    def of_json(cls, body: dict[str, Any]) -> Dataset:
        """What `as_json` made."""
        return cls(
            body["name"],
            {name: Files(Path(prefix)) for name, prefix in body["cohorts"].items()},
            Files(Path(body["pooled"])),
            {name: (cases, controls) for name, (cases, controls) in body["shares"].items()},
            {test: Study.model_validate(study) for test, study in body["studies"].items()},
        )


def simulated(folder: Path, seed: int) -> Dataset:
    """Three cohorts of 700, of which 620, 350 and 80 are cases; age differs between them."""
    shares = {"bremen": (620, 80), "hamburg": (350, 350), "luebeck": (80, 620)}
    causal = tuple(
        Causal(snp=at, odds_ratio=ratio, trait=trait, maf=maf)
        for at, ratio, trait, maf in (
            (150, 1.75, 0.36, 0.30), (870, 1.55, 0.26, 0.35), (1530, 1.5, 0.24, 0.40), (2210, 1.5, 0.24, 0.30),
            (2990, 1.6, 0.28, 0.25), (3600, 1.48, 0.22, 0.45),
        )
    )  # fmt: skip
    made = simulate(
        StudyPlan(
            snps=SNPS, cohorts=tuple(CohortPlan(name, *pair) for name, pair in shares.items()), seed=seed,
            missing=0.01, swapped=0.1, absent=0.002, causal=causal,
            covariates=(Covariate("AGE", 60, 10, log_odds=0.4, trait=0.3), Covariate("BMI", 26, 4, log_odds=0.2)),
            sorted_by={"AGE": 0.6},
        ),
        folder,
    )  # fmt: skip
    if made.pooled is None:
        raise AssertionError("the pooled files were asked for")
    cohorts = {name: Files(prefix) for name, prefix in made.cohorts.items()}
    return Dataset("simulated", cohorts, Files(made.pooled), shares, _studies(("AGE", "BMI"), "TRAIT"))


def hapmap1(folder: Path) -> Dataset:
    """The 60 people of hapmap1 as three cohorts with uneven shares of cases."""
    folder.mkdir(parents=True, exist_ok=True)
    pooled = folder / "pooled"
    with as_file(files("hanse_genomics.demo").joinpath(_HAPMAP)) as source:
        for ending in (".bed", ".bim", ".fam", ".cov", ".pheno"):
            shutil.copyfile(source / f"{_HAPMAP}{ending}", f"{pooled}{ending}")
    people = Path(f"{pooled}.fam").read_text(encoding="utf-8").splitlines()
    is_case = np.array([line.split()[5] == "2" for line in people])
    left = {True: np.flatnonzero(is_case).tolist(), False: np.flatnonzero(~is_case).tolist()}
    cohorts = {}
    for name, (cases, controls) in _SHARES.items():
        rows = sorted(left[True][:cases] + left[False][:controls])
        left[True], left[False] = left[True][cases:], left[False][controls:]
        cohorts[name] = Files(folder / name)
        _take(pooled, folder / name, rows, len(people))
    return Dataset(_HAPMAP, cohorts, Files(pooled), dict(_SHARES), _studies(("Age", "Smoking"), "pheno"))


def _studies(covariates: tuple[str, ...], trait: str) -> dict[str, Study]:
    return {
        "chi_square": Study(test="chi_square"),
        "linear": Study(test="linear", phenotype=trait, covariates=covariates),
        "logistic": Study(test="logistic", covariates=covariates),
    }


def _take(pooled: Path, prefix: Path, rows: Sequence[int], samples: int) -> None:
    """The fileset of some of the people; .cov and .pheno are the pool's, of which a site uses its own people's."""
    lines = Path(f"{pooled}.fam").read_text(encoding="utf-8").splitlines(keepends=True)
    Path(f"{prefix}.fam").write_text("".join(lines[row] for row in rows), encoding="utf-8")
    for ending in (".bim", ".cov", ".pheno"):
        shutil.copyfile(f"{pooled}{ending}", f"{prefix}{ending}")
    octets = np.frombuffer(Path(f"{pooled}.bed").read_bytes(), dtype=np.uint8)
    packed = octets[3:].reshape(-1, -(-samples // 4))
    pairs = (packed[:, :, None] >> np.array([0, 2, 4, 6], dtype=np.uint8)) & 3  # (snps, bytes, 4)
    chosen = pairs.reshape(len(packed), -1)[:, list(rows)]
    filled = np.zeros((len(packed), -(-len(rows) // 4) * 4), dtype=np.uint8)
    filled[:, : len(rows)] = chosen
    quads = filled.reshape(len(packed), -1, 4) << np.array([0, 2, 4, 6], dtype=np.uint8)
    with Path(f"{prefix}.bed").open("wb") as file:
        file.write(octets[:3].tobytes() + quads.sum(axis=2, dtype=np.uint8).tobytes())
