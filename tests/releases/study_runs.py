"""Association studies of three cohorts, in each mode."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from hanse.embedded.deployment import Deployment, SiteFiles
from hanse_genomics.simulation import CohortPlan, Covariate, StudyPlan, simulate
from releases.jobs import STUDIES, STUDY_SNPS, study
from releases.stage import Played, Stage, keep_home, present, until
from releases.tap import tapped


async def studies(folder: Path, played: Played, wanted: Callable[[str], bool]) -> None:
    """Association studies of three cohorts, in each mode."""
    plan = StudyPlan(
        snps=STUDY_SNPS,
        cohorts=(CohortPlan("north", 12, 14), CohortPlan("east", 10, 12), CohortPlan("south", 11, 10)),
        seed=7,
        missing=0.01,
        covariates=(Covariate("AGE", 60, 10, log_odds=0.3, trait=0.2),),
    )
    made = simulate(plan, folder / "cohorts")
    files = {
        name: SiteFiles(prefix, phenotypes=prefix.with_name(f"{prefix.name}.pheno"),
                        covariates=prefix.with_name(f"{prefix.name}.cov"))
        for name, prefix in made.cohorts.items()
    }  # fmt: skip
    schema = {"kind": "genotypes", "phenotypes": ["TRAIT"], "covariates": ["AGE"]}
    policy = {"workflows": ["association_study"], "studies": {"masked": False}}
    async with Deployment(folder, "gwas", {}, schema, policy=policy) as deployment, tapped(folder / "hub") as tap:
        for name, data in files.items():
            await deployment.add_site(name, data)
        await present(deployment.project, len(files))
        stage = Stage(deployment, tap, played)
        for name, (section, mode) in STUDIES.items():
            if wanted(name):
                run = await stage.submit(study(section, mode))
                await stage.done(name, run)
                if "site-study-north" not in played.homes:
                    keep_home(played, "site-study-north", deployment.home("north"), run=run.id)
        if wanted("study-redone"):
            await _study_redone(stage)


async def _study_redone(stage: Stage) -> None:
    """South shares its secrets of a session and then stands still: its answer is asked for in another session."""
    run = await stage.submit(study({"test": "chi_square", "chunk": 512}, "pairwise", deadline=5.0))

    def journalled(*words: str) -> bool:
        subject, parts = f".{run.id}", [word.encode() for word in words]
        return any(
            one.subject.startswith("hanse.v1.journal.") and one.subject.endswith(subject)
            and all(part in one.data for part in parts) for one in stage.tap.said
        )  # fmt: skip

    async with asyncio.timeout(60):
        while not journalled('"kind":"closed"', '-share"'):  # noqa: ASYNC110 - heard by the tap
            await asyncio.sleep(0.0005)
    with stage.standing_still("south"):
        await until(lambda: journalled("-s2"), "no second session")
    await stage.done("study-redone", run)
