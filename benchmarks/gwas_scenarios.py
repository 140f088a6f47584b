"""Six scenarios after Nasirigerdeh et al. (2022, Table S2): federated, pooled and meta-analysis.

Three cohorts of 1781, cases and controls as table S2 has them for COPDGene. All six pools are drawn from one
population; in VI, who is in which cohort follows pack years, a confounder that tells cases from controls well.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from gwas_plink import plink

from hanse_genomics.compare import Agreement, agreement, bonferroni, meta_analysis, read_associations
from hanse_genomics.compare.tables import Associations
from hanse_genomics.simulation import Causal, CohortPlan, Covariate, Plan, Simulated, simulate

SHARES: dict[str, tuple[tuple[int, int], ...]] = {
    "I": ((937, 844), (937, 844), (937, 844)),
    "II": ((737, 1044), (937, 844), (1137, 644)),
    "III": ((537, 1244), (937, 844), (1337, 444)),
    "IV": ((337, 1444), (937, 844), (1537, 244)),
    "V": ((237, 1544), (937, 844), (1637, 144)),
    "VI": ((937, 844), (937, 844), (937, 844)),
}
WORDS = {
    "I": "balanced", "II": "slightly imbalanced", "III": "moderately", "IV": "highly", "V": "severely",
    "VI": "heterogeneous confounder",
}  # fmt: skip
COVARIATES = (
    Covariate("AGE", 60, 9, log_odds=0.3),
    Covariate("SMOKE", 0.5, 0.3, log_odds=0.2),
    Covariate("BMI", 27, 5, log_odds=0.1),
    Covariate("PACKYEARS", 40, 20, log_odds=0.8),
)
NAMES = tuple(covariate.name for covariate in COVARIATES)

Federated = Callable[[Simulated, Path], Associations]
"""A federated logistic regression of the cohorts: table of all SNPs."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """How federated and both meta-analyses agree with the pooled analysis."""

    name: str
    causal_found: int
    federated: Agreement
    fixed: Agreement
    random: Agreement


def plan(name: str, *, snps: int, seed: int) -> Plan:
    """A scenario: 24 causal SNPs whose pooled z lies about 4.5 to 7, the rest do nothing."""
    cohorts = tuple(CohortPlan(f"split{at + 1}", *counts) for at, counts in enumerate(SHARES[name]))
    ratios = np.linspace(1.24, 1.36, 24)
    causal = tuple(
        Causal((2 * at + 1) * snps // 48, odds_ratio=round(float(r), 3), maf=0.3) for at, r in enumerate(ratios)
    )
    sorted_by = {"PACKYEARS": 0.98} if name == "VI" else {}
    return Plan(snps, cohorts, seed=seed, covariates=COVARIATES, causal=causal, missing=0.002, sorted_by=sorted_by)


def scenario(name: str, federated: Federated, *, snps: int, seed: int = 11) -> Scenario:
    """Run one of the six."""
    study = plan(name, snps=snps, seed=seed)
    with tempfile.TemporaryDirectory(prefix="hanse-gwas-") as temporary:
        folder = Path(temporary)
        made = simulate(study, folder / "data")
        assert made.pooled is not None
        pooled = read_associations(plink(made.pooled, "logistic", "CASE", NAMES, folder / "pooled").table)
        alone = [
            read_associations(plink(prefix, "logistic", "CASE", NAMES, folder / cohort).table)
            for cohort, prefix in made.cohorts.items()
        ]
        ours = federated(made, folder / "federated").aligned(pooled.snp, pooled.a1)
    same = [table.aligned(pooled.snp, pooled.a1) for table in alone]
    meta = meta_analysis(np.stack([table.beta for table in same]), np.stack([table.se for table in same]))
    level = bonferroni(snps)
    causal = {f"rs{effect.snp}" for effect in study.causal}
    hits = {name for name, p in zip(pooled.snp, pooled.log10_p, strict=True) if p <= np.log10(level)}
    return Scenario(
        name, len(hits & causal),
        agreement(ours.log10_p, pooled.log10_p, level),
        agreement(meta.fixed.log10_p, pooled.log10_p, level),
        agreement(meta.random.log10_p, pooled.log10_p, level),
    )  # fmt: skip


def table(scenarios: Mapping[str, Scenario]) -> str:
    """As docs/gwas.md has it."""
    head = "| scenario | cases by cohort | pooled: hits (causal) | federated | meta, fixed | meta, random |"
    lines = [head, "|---|---|---|---|---|---|"]
    for name, found in scenarios.items():
        shares = ", ".join(f"{cases}/{cases + controls}" for cases, controls in SHARES[name])
        cells = [_cell(found.federated), _cell(found.fixed), _cell(found.random)]
        hits = f"{found.federated.significant} ({found.causal_found})"
        lines.append(f"| {name} {WORDS[name]} | {shares} | {hits} | {' | '.join(cells)} |")
    return "\n".join(lines)


def figures(found: Scenario) -> dict[str, object]:
    """For --json."""
    return {"causal_found": found.causal_found} | {
        kind: asdict(getattr(found, kind)) for kind in ("federated", "fixed", "random")
    }


def _cell(found: Agreement) -> str:
    return f"r = {found.pearson:.4f}; {found.found} found, {found.missed} missed, {found.false} false"
