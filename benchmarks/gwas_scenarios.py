"""Scenarios after Nasirigerdeh et al. (2022, Tables S2 and S3): federated, pooled and meta-analysis.

COPDGENE: three cohorts of 1781, cases and controls as table S2 has them. All pools are drawn from one population; in
VI, who is in which cohort follows pack years, a confounder that tells cases from controls well. FINNGEN: cohorts of
unequal size, a fortieth of those of table S3: as many cases in each, the more controls the larger the cohort.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from gwas_plink import plink
from scratch import scratch

from hanse_genomics.compare import PooledAgreement, agreement, bonferroni, meta_analysis, read_associations
from hanse_genomics.compare.tables import Associations
from hanse_genomics.simulation import Causal, CohortPlan, Covariate, Simulated, StudyPlan, simulate
from hanse_lab.measured import Finding, MeasuredClaim

Shares = Mapping[str, tuple[tuple[int, int], ...]]
COPDGENE: Shares = {
    "I": ((937, 844), (937, 844), (937, 844)),
    "II": ((737, 1044), (937, 844), (1137, 644)),
    "III": ((537, 1244), (937, 844), (1337, 444)),
    "IV": ((337, 1444), (937, 844), (1537, 244)),
    "V": ((237, 1544), (937, 844), (1637, 144)),
    "VI": ((937, 844), (937, 844), (937, 844)),
}
FINNGEN: Shares = {
    "I": ((285, 286), (285, 286), (285, 286)),
    "II": ((285, 286), (285, 429), (285, 215)),
    "III": ((285, 286), (285, 857), (285, 143)),
    "IV": ((285, 286), (285, 1428), (285, 72)),
    "V": ((285, 286), (285, 2199), (285, 29)),
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

ABOUT = {
    False: "Three cohorts of 1,781 people each with the case shares of Nasirigerdeh et al. (2022, Table S2, COPDGene), "
    "and 24 SNPs that matter: logistic regression with four covariates by the federation, by PLINK on the pool, and "
    "by PLINK in each cohort with meta-analysis after it.",
    True: "Three cohorts of unequal size, a fortieth of those of Nasirigerdeh et al. (2022, Table S3, FinnGen): as "
    "many cases in each, and the more controls the larger it is; 24 SNPs that matter. Logistic "
    "regression with four covariates by the federation, by PLINK on the pool, and in each cohort with meta-analysis.",
}

Federated = Callable[[Simulated, Path], Associations]
"""A federated logistic regression of the cohorts: table of all SNPs."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """How federated and both meta-analyses agree with the pooled analysis."""

    name: str
    causal_found: int
    federated: PooledAgreement
    fixed: PooledAgreement
    random: PooledAgreement


def plan(name: str, shares: Shares, *, snps: int, seed: int) -> StudyPlan:
    """A scenario: 24 causal SNPs whose pooled z lies about 4.5 to 7, the rest do nothing."""
    cohorts = tuple(CohortPlan(f"split{at + 1}", *counts) for at, counts in enumerate(shares[name]))
    people = sum(map(sum, shares[name]))
    ratios = np.linspace(1.24, 1.36, 24) ** (5343 / people) ** 0.5  # fewer people tell as much of larger effects
    causal = tuple(
        Causal((2 * at + 1) * snps // 48, odds_ratio=round(float(r), 3), maf=0.3) for at, r in enumerate(ratios)
    )
    sorted_by = {"PACKYEARS": 0.98} if name == "VI" else {}
    return StudyPlan(snps, cohorts, seed=seed, covariates=COVARIATES, causal=causal, missing=0.002, sorted_by=sorted_by)


def scenario(name: str, shares: Shares, federated: Federated, *, snps: int, seed: int = 11) -> Scenario:
    """Run one of them."""
    study = plan(name, shares, snps=snps, seed=seed)
    with scratch("gwas") as temporary:
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


def table(scenarios: Mapping[str, Scenario], shares: Shares) -> list[tuple[str, ...]]:
    """As docs/gwas.md has it."""
    rows: list[tuple[str, ...]] = [
        (
            "scenario",
            "cases of people, by cohort",
            "pooled: hits (causal)",
            "federated",
            "meta-analysis, fixed",
            "random",
        )
    ]
    for name, found in scenarios.items():
        sizes = ", ".join(f"{cases} of {cases + controls}" for cases, controls in shares[name])
        hits = f"{found.federated.significant} ({found.causal_found})"
        cells = [_cell(found.federated), _cell(found.fixed), _cell(found.random)]
        rows.append((f"{name} {WORDS[name]}" if shares is COPDGENE else name, sizes, hits, *cells))
    return rows


def claims(found: Mapping[str, Scenario], shares: Shares) -> list[MeasuredClaim]:
    """What the scenarios say of the paper's claims."""
    ours = {name: one.federated for name, one in found.items()}
    lost = {name: (one.fixed.missed, one.random.missed) for name, one in found.items()}
    told = ", ".join(f"{name}: {fixed} and {random}" for name, (fixed, random) in lost.items())
    hits = ", ".join(f"{name}: {one.significant}" for name, one in ours.items())
    exact = all(not one.missed and not one.false for one in ours.values())
    made = [
        MeasuredClaim(
            says="federated hits are those of the pooled analysis", finding=_holds(exact),
            found=f"hits {hits}; missed {sum(one.missed for one in ours.values())}, "
            f"false {sum(one.false for one in ours.values())}; meta-analysis (fixed, random effects) misses {told}",
        ),
        MeasuredClaim(
            says="federated correlation is 1 in all scenarios",
            finding=_holds(all(one.pearson > 0.99995 for one in ours.values())),
            found="smallest r = " + f"{min(one.pearson for one in ours.values()):.6f}",
        ),
    ]  # fmt: skip
    if shares is FINNGEN:
        false = {name: (one.fixed.false, one.random.false) for name, one in found.items()}
        made.append(
            MeasuredClaim(
                says="meta-analysis has false hits in scenario IV", finding=_holds(max(false["IV"]) >= 14),
                found="false hits, fixed and random effects, in IV: " + " and ".join(map(str, false["IV"])),
            )
        )  # fmt: skip
        return made
    uneven = [sum(lost[name]) for name in ("I", "II", "III", "IV", "V")]
    kept = {name: (one.fixed.found, one.random.found) for name, one in found.items() if name in ("IV", "V", "VI")}
    made += [
        MeasuredClaim(
            says="meta-analysis misses more as imbalance grows",
            finding=_holds(uneven == sorted(uneven), in_part=uneven[-1] > uneven[0]),
            found=f"missed (fixed, random effects): {told}",
        ),
        MeasuredClaim(
            says="meta-analysis finds none in IV, V and VI",
            finding=_holds(not any(map(max, kept.values()))),
            found="found (fixed, random effects): " + ", ".join(f"{n}: {f} and {r}" for n, (f, r) in kept.items()),
        ),
    ]  # fmt: skip
    return made


def _holds(truth: bool, *, in_part: bool = False) -> Finding:
    return "reproduced" if truth else "in part" if in_part else "not reproduced"


def figures(found: Scenario) -> dict[str, object]:
    """For --json."""
    return {"causal_found": found.causal_found} | {
        kind: asdict(getattr(found, kind)) for kind in ("federated", "fixed", "random")
    }


def _cell(found: PooledAgreement) -> str:
    return f"r = {found.pearson:.4f}; {found.found} found, {found.missed} missed, {found.false} false"
