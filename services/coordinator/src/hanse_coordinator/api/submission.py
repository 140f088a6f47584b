"""What is checked of a job before it becomes a run: everything that can be known without the sites' data."""

from __future__ import annotations

import asyncio

from hanse_coordinator.api.first_model import read_entries
from hanse_coordinator.api.hub import Hub
from hanse_coordinator.records import ProjectRecord
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_learning.config import check_learning
from hanse_learning.config.first_model import check_first_model
from hanse_learning.server.config.checks import check_job_strategy
from hanse_learning.utility import require_utility
from hanse_privacy.pairwise.thresholds import threshold_of
from hanse_privacy.rules import check_rules
from hanse_schemas.job import Job
from hanse_schemas.schema import DataSchema, GenotypesSchema, OpenSchema
from hanse_schemas.secure_aggregation import SecureAggregation
from hanse_schemas.study import Study
from hanse_workflows.masking.protocols import plan_of
from hanse_workflows.registry import workflow_of


async def check_submission(hub: Hub, project: ProjectRecord, job: Job) -> tuple[str, ...]:
    """Check a job against its project.

    Returns:
        Warnings: what would keep it waiting now, and what datapods would refuse.

    Raises:
        HanseError: INVALID_INPUT naming the field, for an initial model that is none, too; NOT_FOUND for one that was
            not uploaded.
    """
    workflow_of(job)
    check_rules(job)
    if job.study is not None:
        check_study(job.study, project.data_schema)
        least, sums = job.participants.minimum, job.secure_aggregation
        if sums is not None and sums.mode == "pairwise":
            threshold_of(None, members=least, minimum=least)
        return await _waiting(hub, project, job)
    check_learning(job, project.data_schema)
    check_job_strategy(job)
    if job.secure_aggregation is not None:
        _check_masked(job, job.secure_aggregation)
    if job.utility_preserving:
        require_utility(job)
    warnings: tuple[str, ...] = ()
    if job.initial_model is not None:
        key = object_key(project.name, job.initial_model)
        if not await asyncio.to_thread(hub.store.exists, key):
            raise HanseError(
                ErrorCode.NOT_FOUND,
                f"job.initial_model: no object {job.initial_model} was uploaded to {project.name}",
                hint=f"upload it by POST /v1/projects/{project.name}/objects",
            )
        entries = await asyncio.to_thread(read_entries, hub.store, key)
        warnings = check_first_model(job, entries, project.data_schema)
    return warnings + await _waiting(hub, project, job)


async def _waiting(hub: Hub, project: ProjectRecord, job: Job) -> tuple[str, ...]:
    entries = await hub.buckets.participants.list(project=project.name)
    enrolled = sum(not entry.value.revoked for entry in entries)
    if enrolled < job.participants.minimum:
        return (
            f"participants.minimum: {job.participants.minimum} are needed and {enrolled} are enrolled; "
            f"the run waits {job.participants.patience:.0f} s for them",
        )
    return ()


def check_study(study: Study, schema: DataSchema) -> None:
    """Check that the project's data are genotypes, with the columns that a study names.

    Raises:
        HanseError: INVALID_INPUT naming the field.
    """
    if isinstance(schema, OpenSchema):
        return
    if not isinstance(schema, GenotypesSchema):
        raise invalid(
            "project's data schema", schema.kind, "genotypes, or open, for an association study",
            hint="make a project with schema {kind: genotypes}",
        )  # fmt: skip
    if missing := [name for name in study.covariates if name not in schema.covariates]:
        raise invalid("study.covariates", missing, f"columns of the project's schema: {', '.join(schema.covariates)}")
    if study.phenotype is not None and study.phenotype not in schema.phenotypes:
        raise invalid("study.phenotype", study.phenotype, f"one of the schema's: {', '.join(schema.phenotypes)}")


def _check_masked(job: Job, sums: SecureAggregation) -> None:
    """The smallest round must fit its ring, and in mode pairwise have its threshold; larger ones are checked when they
    begin."""
    least = job.participants.minimum
    plan_of(job, sums, least)
    if sums.mode == "pairwise":
        threshold_of(sums.threshold, members=least, minimum=sums.minimum)


def object_key(project: str, digest: str) -> str:
    """Where a project's uploaded object rests."""
    return f"models/{project}/{digest}"
