"""The hub's step `samples`: whether there is enough to study, and how the SNPs lie on the chromosomes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_genomics import groups
from hanse_genomics.arrays import Arrays, Given
from hanse_genomics.hub.step import Finished, HubStep
from hanse_privacy.joint import Settings
from hanse_schemas.study import Study

LEAST = 10
PER_PREDICTOR = 5
"""Samples that a study has at least: LEAST, and so many more for each predictor: fewer can be told from the sums."""


def samples(study: Study, settings: Settings, total: Arrays, given: Given) -> Finished:
    """Numbers of samples.

    Args:
        total: `people`, int64, by `groups.ALL`; `swapped`, int64 (1,).
        given: `snps`.

    Returns:
        facts: `sizes` by group; `spans`: runs of SNPs of one chromosome code, [code, start, stop] each; `tested`:
        complete samples; `swapped`: of all cohorts' SNPs, those whose alleles were turned.

    Raises:
        HanseError: INVALID_INPUT where nobody is a case, or a control; FORBIDDEN where the samples are hardly more
            than the sums over them, which then tell of single people, unless the study says `few_samples`.
    """
    sizes = {name: int(number) for name, number in zip(groups.ALL, total["people"].tolist(), strict=True)}
    tested = groups.size(sizes, "complete")
    if not tested:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"of the {groups.size(sizes, 'all')} samples of all cohorts, none has the phenotype and every covariate",
        )
    if study.is_binary:
        _both(sizes)
    predictors = predictors_of(study)
    least = LEAST + PER_PREDICTOR * predictors
    if tested < least and not study.few_samples:
        raise HanseError(
            ErrorCode.FORBIDDEN,
            f"samples: {tested} of all cohorts have the phenotype and every covariate, expected at least {least} for "
            f"{predictors} predictors: sums over fewer could tell who is in them",
            hint="if every site agrees (studies.few_samples in its policy), set study.few_samples",
        )
    code = given["snps"]["chromosome"]
    starts = np.flatnonzero(np.diff(code, prepend=-1) != 0) if len(code) else np.zeros(0, dtype=np.int64)
    stops = np.append(starts[1:], len(code))
    spans = [[int(code[a]), int(a), int(b)] for a, b in zip(starts.tolist(), stops.tolist(), strict=False)]
    swapped = int(total["swapped"][0])
    return Finished({}, {"sizes": dict(sizes), "spans": list(spans), "tested": tested, "swapped": swapped})


def predictors_of(study: Study) -> int:
    """The SNP and all covariates."""
    return 1 + len(study.covariates) + study.sex + study.structure.components if study.is_regression else 1


def _both(sizes: Mapping[str, int]) -> None:
    for status, other in (("case", "controls"), ("control", "cases")):
        if not groups.size(sizes, f"complete_{status}"):
            raise HanseError(
                ErrorCode.INVALID_INPUT,
                f"phenotype: there is no {status} among the {groups.size(sizes, 'complete')} samples of all cohorts "
                f"that can be tested, only {other}",
                hint="one cohort without them is fine, all cohorts together need both",
            )


STEPS: dict[str, HubStep] = {"samples": samples}
