"""What is checked of a job before it becomes a run: everything that can be known without the sites' data."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

from hanse_coordinator.api.hub import Hub
from hanse_coordinator.records import ProjectRecord
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.store.port import ObjectStore
from hanse_learning.config.first_model import check_first_model
from hanse_learning.preparation.plan import needs_sums
from hanse_schemas.job import Job
from hanse_schemas.metrics import COUNTED
from hanse_schemas.prepare import Prepare, features_schema
from hanse_schemas.protocols import asked_by_counts, asked_by_job, coarse_bins, protocol
from hanse_workflows.quorum import counted
from hanse_workflows.submission import check_submitted
from hanse_workflows.uploaded_model import read_entries

_NAMED = 10
"""Sites in a warning."""


async def check_submission(hub: Hub, project: ProjectRecord, job: Job) -> tuple[Job, tuple[str, ...]]:
    """Check a job against its project.

    Returns:
        The job, which asks what it does not insist on as the sites that are there let it; and warnings: what would
        keep it waiting now, and what datapods would refuse.

    Raises:
        HanseError: INVALID_INPUT naming the field, for an initial model that is none, too; NOT_FOUND for one that was
            not uploaded; CONFLICT where sites that are there do not know what the job asks.
    """
    check_submitted(job, schema=project.data_schema)
    if project.terms is not None and (broken := project.terms.broken_by(job)):
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"job: it asks more than the sites of {project.name} agreed to: {'; '.join(broken)}",
            hint="keep to the project's terms, or write others, to which each site must agree anew",
        )  # fmt: skip
    warnings: tuple[str, ...] = ()
    if job.initial_model is not None:
        key = object_key(project.name, job.initial_model)
        if not await asyncio.to_thread(hub.store.exists, key):
            raise HanseError(
                ErrorCode.NOT_FOUND,
                f"job.initial_model: no object {job.initial_model} was uploaded to {project.name}",
                hint=f"upload it by POST /v1/projects/{project.name}/objects",
            )
        warnings = await asyncio.to_thread(_first_model, hub.store, key, job, project)
    entries = await hub.buckets.participants.list(project=project.name)
    enrolled = [entry.value.participant for entry in entries if not entry.value.revoked]
    told = {name: seen.presence.protocols for name in enrolled if (seen := hub.presence.of(project.name, name))}
    _refuse_first_release(job, told)
    if project.terms is not None and project.terms.asked.protocols is not None:
        told["the project's terms"] = project.terms.asked.protocols
    job, coarser = as_sites_allow(job, told)
    return job, (
        *warnings, *coarser, *told_by_sums(job), *closed_protocols(job, told), *left_behind(job),
        *_waiting(len(enrolled), job),
    )  # fmt: skip


def told_by_sums(job: Job) -> tuple[str, ...]:
    """Where masks hide each update, and sums of other members may still tell one: noise is the remedy, also where all
    sites take part in each round, for another job may have one site more or fewer."""
    masked = job.secure_aggregation is not None and job.secure_aggregation.mode != "ring"
    wanted = job.participants
    if not masked or job.privacy is not None or job.study is not None:
        return ()
    if wanted.fraction == 1 and wanted.quorum == 1:
        return (
            "secure_aggregation: sums of this job and of another that has one site more or fewer tell that site's "
            "update where both ask nearly the same; sites refuse the nearest of them, and only noise (a section "
            "privacy) is a remedy against the rest",
        )
    return (
        f"secure_aggregation: sums of rounds whose participants change (fraction {wanted.fraction:g}, quorum "
        f"{wanted.quorum:g}) tell single updates where the model hardly moves; sites refuse the nearest of them, and "
        "only noise (a section privacy) is a remedy against the rest",
    )


def closed_protocols(job: Job, told: Mapping[str, Collection[str] | None]) -> tuple[str, ...]:
    """Which protocols of many fine questions the job needs and sites' policies have closed.

    Args:
        told: which are open at each site, by its name; None: it does not say.
    """
    warnings = []
    for name in asked_by_job(job):
        closed = sorted(site for site, open_ in told.items() if open_ is not None and name not in open_)
        if closed:
            one = protocol(name)
            warnings.append(
                f"asking.protocols: {name} ({one.tells}) is closed by the policy of {_some(closed)}, where this job "
                f"will be refused; without it: {one.instead}"
            )
    return tuple(warnings)


def as_sites_allow(job: Job, told: Mapping[str, Collection[str] | None]) -> tuple[Job, tuple[str, ...]]:
    """A job whose evaluations count, where that is optional, no finer than all sites that have said it let them.

    Args:
        told: as of `closed_protocols`.

    Returns:
        The job, and what it does without, in words.
    """
    asked = job.evaluate
    if not asked.optional:
        return job, ()
    old = sorted(site for site, open_ in told.items() if open_ is None)
    if old and job.secure_aggregation is not None:  # they refuse a masked sum that has counts in it
        named = ", ".join(name for name in asked.named if name in COUNTED)
        kept = asked.model_copy(update={"metrics": (), "optional": False})
        why = f"evaluate.metrics: {named} are not counted, for {_some(old)} is of release 0.1.0"
        return job.model_copy(update={"evaluate": kept}), (why,)
    fine = asked_by_counts(asked.named, asked.bins, asked.classes, noisy=job.privacy is not None)
    open_at = {site: set(open_) for site, open_ in told.items() if open_ is not None}
    sites = sorted(site for site, open_ in open_at.items() if not fine.keys() <= open_)
    if not sites:
        return job, ()
    closed = {name for name in fine for open_ in open_at.values() if name not in open_}
    bins = coarse_bins(asked.classes) if "score_histograms" in closed and asked.bins is None else asked.bins
    names = tuple(name for name in asked.named if not closed & asked_by_counts((name,), bins, asked.classes).keys())
    lost = [name for name in asked.named if name not in names]
    without: list[str] = []
    if bins != asked.bins and set(names) & {"auroc", "average_precision"}:
        without.append(f"auroc and average_precision are of histograms of {bins} bins, and up to 0.01 off")
    if lost:
        without.append(f"not counted: {', '.join(lost)}")
    kept = asked.model_copy(update={"metrics": names, "bins": bins})
    because = f"for the policy of {_some(sites)} closes {', '.join(sorted(closed))} (asking.protocols)"
    return job.model_copy(update={"evaluate": kept}), (f"evaluate.metrics: {', and '.join(without)}, {because}",)


def _some(sites: Sequence[str]) -> str:
    return ", ".join(sites[:_NAMED]) + (f" and {len(sites) - _NAMED} more" if len(sites) > _NAMED else "")


def _refuse_first_release(job: Job, told: Mapping[str, Collection[str] | None]) -> None:
    """Refuse a preparation that asks sites which do not know the task, where they have said who they are.

    Args:
        told: as of `closed_protocols`.

    Raises:
        HanseError: CONFLICT.
    """
    prepare = job.prepare
    old = sorted(site for site, open_ in told.items() if open_ is None)
    if old and isinstance(prepare, Prepare) and prepare.fitted is None and needs_sums(prepare.rules, prepare.classes):
        raise HanseError(
            ErrorCode.CONFLICT, f"prepare: {_some(old)}: the datapod is of release 0.1.0, which prepares no columns",
            hint="upgrade it, or write prepare: none where all columns are numbers without a missing cell",
        )  # fmt: skip


def left_behind(job: Job) -> tuple[str, ...]:
    """Where the run goes on after its best model, which then may be deleted."""
    if job.stop is None or job.stop.patience is None or job.keep == "best":
        return ()
    return (
        f"stop.patience: the run ends {job.stop.patience} evaluations after its best model, which may be deleted by "
        "then; write keep: best to have it published and kept",
    )


def _waiting(enrolled: int, job: Job) -> tuple[str, ...]:
    if enrolled < job.participants.minimum:
        return (
            f"participants.minimum: {counted(enrolled, None, 'are enrolled', job.participants.minimum)}; "
            f"the run waits {job.participants.patience:.0f} s for them",
        )
    return ()


def _first_model(store: ObjectStore, key: str, job: Job, project: ProjectRecord) -> tuple[str, ...]:
    def read(offset: int, length: int) -> bytes:
        buffer = bytearray(length)
        store.read_into(key, offset, memoryview(buffer))
        return bytes(buffer)

    return check_first_model(job, read_entries(store.size(key), read), features_schema(job, project.data_schema))


def object_key(project: str, digest: str) -> str:
    """Where a project's uploaded object rests."""
    return f"models/{project}/{digest}"
