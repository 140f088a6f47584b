"""A federated study beside the pooled analysis, and beside meta-analysis of the cohorts' own."""

from __future__ import annotations

import math
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hanse_genomics.compare.agreement import GENOME_WIDE, PooledAgreement, agreement, bonferroni
from hanse_genomics.compare.meta import meta_analysis
from hanse_genomics.compare.plink import plink_program, plink_table
from hanse_genomics.compare.printed import Differences, differences
from hanse_genomics.compare.tables import Associations, read_associations
from hanse_genomics.demo.datasets import Dataset, Files
from hanse_genomics.files import open_cohort
from hanse_genomics.rehearsal import rehearse
from hanse_genomics.results import of_arrays, write_tsv
from hanse_schemas.study import Study

FEDERATED, FIXED, RANDOM = "federated", "meta-analysis, fixed", "meta-analysis, random"


@dataclass(frozen=True, slots=True)
class Beside:
    """What was found of one data set by one test.

    Attributes:
        reference: what analysed the pooled data: `PLINK 1.9`, or `Hanse, one cohort`.
        printed: how the printed tables differ.
        analyses: agreement with the pooled analysis at 5e-8, and at Bonferroni's level.
    """

    dataset: str
    test: str
    snps: int
    reference: str
    printed: Differences
    analyses: dict[str, tuple[PooledAgreement, PooledAgreement]]

    def as_json(self) -> dict[str, Any]:
        """For the program that prints it."""
        return {
            "dataset": self.dataset, "test": self.test, "snps": self.snps, "reference": self.reference,
            "printed": _plain(asdict(self.printed)),
            "analyses": {name: [_plain(asdict(one)) for one in pair] for name, pair in self.analyses.items()},
        }  # fmt: skip


def beside(dataset: Dataset, test: str, federated: Path, folder: Path) -> Beside:
    """Compare one study's results with the pooled analysis; meta-analyse the cohorts' own, and compare that, too.

    Args:
        federated: the table `results.tsv.gz` of the federated study.
        folder: where PLINK's files are put.

    Raises:
        HanseError: as PLINK and the rehearsal; INVALID_INPUT when a table cannot be read.
    """
    study, program = dataset.studies[test], plink_program()
    folder.mkdir(parents=True, exist_ok=True)
    pooled_path = analysed(study, dataset.pooled, folder / f"{test}-pooled", program)
    ours = read_associations(federated)
    pooled = read_associations(pooled_path).aligned(ours.snp, ours.a1)
    own = [
        read_associations(analysed(study, cohort, folder / f"{test}-{name}", program, intervals=True))
        for name, cohort in dataset.cohorts.items()
    ]
    fixed, random = _meta([one.aligned(ours.snp, ours.a1) for one in own])
    level = bonferroni(len(ours))
    analyses = {
        name: (agreement(values, pooled.log10_p, GENOME_WIDE), agreement(values, pooled.log10_p, level))
        for name, values in ((FEDERATED, ours.log10_p), (FIXED, fixed), (RANDOM, random))
    }
    reference = "PLINK 1.9" if program else "Hanse, one cohort"
    return Beside(dataset.name, test, len(ours), reference, differences(federated, pooled_path), analyses)


def analysed(study: Study, files: Files, out: Path, program: str | None, *, intervals: bool = False) -> Path:
    """One fileset's table, by PLINK where it is installed, else by Hanse's own functions with a single cohort."""
    if program is not None:
        return plink_table(program, study, files.prefix, out, intervals=intervals)
    alone = study.model_copy(update={"few_cohorts": True, "few_samples": True})
    cohort = open_cohort(files.prefix, alone, files.phenotypes, files.covariates)
    with tempfile.TemporaryDirectory() as state:
        made = rehearse(alone, {"alone": cohort}, Path(state))
    path = out.with_name(f"{out.name}.tsv.gz")
    write_tsv(of_arrays(made.results, made.summary), path)
    return path


def _plain(body: dict[str, Any]) -> dict[str, Any]:
    """None for numbers that JSON has not."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in body.items()
    }


def _meta(own: list[Associations]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    found = meta_analysis(np.stack([one.beta for one in own]), np.stack([one.se for one in own]))
    return found.fixed.log10_p, found.random.log10_p
