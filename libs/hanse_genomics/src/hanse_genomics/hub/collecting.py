"""The hub's last step, `collect`: the chunks' results as one object, and the study in a few numbers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from scipy import special

from hanse_genomics import groups, reasons
from hanse_genomics.arrays import Arrays, Floats, Given
from hanse_genomics.hub.step import Finished, HubStep
from hanse_genomics.reasons import Reason
from hanse_privacy.joint import Settings
from hanse_schemas.study import Study

MEDIAN = 0.454936423119573
"""Of chi-square with 1 df."""

_QUALITY = {"missing": Reason.MISSING, "hardy_weinberg": Reason.HARDY_WEINBERG, "maf": Reason.MAF}


def collect(study: Study, settings: Settings, total: object, given: Given) -> Finished:
    """Put the chunks together, in genome order.

    Args:
        settings: `chunks`: the keys of the chunks' results among what is given, in order; `sizes`, `opened`,
            `structure`, `null`, `notes`: what former steps have told.
        given: `snps`, and the chunks' results.

    Returns:
        outputs `results` (the SNPs and every column) and `summary` (`json`: UTF-8); facts: `tested`, `lambda`.
    """
    chunks = [given[key] for key in settings["chunks"]]
    snps = given["snps"]
    results: Arrays = {
        "chromosome": np.asarray(snps["chromosome"], np.int8),
        "position": np.asarray(snps["position"], np.int64),
        "name": snps["name"],
        "first": snps["first"],
        "second": snps["second"],
    }
    for column in chunks[0] if chunks else ():
        results[column] = np.concatenate([chunk[column] for chunk in chunks])
    summary = _summary(study, settings, results)
    written = np.frombuffer(json.dumps(summary, allow_nan=False, sort_keys=True).encode(), dtype=np.uint8)
    return Finished(
        {"results": results, "summary": {"json": written}},
        {"tested": summary["snps"]["tested"], "lambda": summary["lambda"]},
    )


def inflation(log10_p: Floats) -> float | None:
    """Genomic inflation: the median of the statistics, as chi-square with 1 df, by its expectation.

    Args:
        log10_p: (S,), NaN where a SNP has none.
    """
    known = log10_p[np.isfinite(log10_p)]
    if not len(known):
        return None
    z = special.ndtri_exp(np.median(known) * np.log(10.0) - np.log(2.0))
    return float(z * z / MEDIAN)


def _summary(study: Study, settings: Settings, results: Arrays) -> dict[str, Any]:
    sizes = settings["sizes"]
    opened = settings["opened"]
    reason = results["reason"]
    counts = {int(code): int(number) for code, number in zip(*np.unique(reason, return_counts=True), strict=True)}
    tested = counts.pop(int(Reason.TESTED), 0)
    summary: dict[str, Any] = {
        "study": study.model_dump(mode="json"),
        "cohorts": opened.get("cohorts", {}),
        "samples": {
            "all": groups.size(sizes, "all"),
            "founders": groups.size(sizes, "founder"),
            "tested": groups.size(sizes, "complete"),
            "males": sizes["complete/male"],
            "females": sizes["complete/rest"],
        },
        "snps": {
            **{key: value for key, value in opened.items() if key not in ("cohorts", "examples", "version")},
            "tested": tested,
            "left_out": len(reason) - tested,
        },
        "reasons": {reasons.words(code): number for code, number in sorted(counts.items())},
        "quality": {name: counts.get(int(code), 0) for name, code in _QUALITY.items()},
        "lambda": inflation(results["log10_p"]),
        "covariates": list(settings["covariates"]),
        "notes": [*opened.get("examples", []), *settings["notes"]],
    }
    if study.is_binary:
        summary["samples"] |= {
            "cases": groups.size(sizes, "complete_case"),
            "controls": groups.size(sizes, "complete_control"),
        }
    for name in ("structure", "null"):
        if settings.get(name):
            summary[name] = settings[name]
    if "iterations" in results and (used := results["iterations"][reason == Reason.TESTED]).size:
        summary["iterations"] = {"max": int(used.max()), "mean": round(float(used.mean()), 3)}
    return summary


STEPS: dict[str, HubStep] = {"collect": collect}
