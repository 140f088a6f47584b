"""A job from its first step to its last, in this process."""

from __future__ import annotations

import asyncio
import re
import secrets
from asyncio.events import _get_running_loop, _set_running_loop
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass

from hanse_fabric.errors import HanseError, invalid
from hanse_fabric.messages import Lineage
from hanse_fabric.names import SLUG
from hanse_learning.config.first_model import check_first_model
from hanse_schemas.job import Job
from hanse_schemas.prepare import completed_job, features_schema
from hanse_schemas.schema import DataSchema
from hanse_workflows.failures import first_reason
from hanse_workflows.memory.journal import Journal, MemoryObjects
from hanse_workflows.memory.sites import MemorySite
from hanse_workflows.memory.verbs import MemoryVerbs, OnVersion, Told
from hanse_workflows.preparing import conduct_prepared
from hanse_workflows.submission import check_submitted
from hanse_workflows.uploaded_model import read_entries
from hanse_workflows.workflow import Workflow, as_conducted


@dataclass(frozen=True, slots=True)
class Conducted:
    """What came of a run.

    Attributes:
        model: bytes of the last version's tensor file; None where the workflow publishes none.
        digest: of it.
        lineage: of it.
        metrics: of it.
        versions: digests of all versions, in their order.
        outputs: bytes of the objects that a study keeps, by name.
        job: as it was conducted, with what its preparation was found to be.
    """

    model: bytes | None
    digest: str | None
    lineage: Lineage | None
    metrics: Mapping[str, float]
    versions: tuple[str, ...]
    outputs: Mapping[str, bytes]
    job: Job


def conduct(
    job: Job,
    sites: Mapping[str, MemorySite],
    *,
    workflow: Workflow | None = None,
    submitted: Job | None = None,
    schema: DataSchema | None = None,
    initial: bytes | None = None,
    journal: Journal | None = None,
    told: Told = lambda _kind, _round, _data: None,
    published: OnVersion = lambda _model, _lineage: None,
    secret: Callable[[int], bytes] = secrets.token_bytes,
    sites_add_noise: bool = False,
) -> Conducted:
    """Conduct a run in this process. Within a running event loop, as a notebook has one, that loop waits for the run.

    What a hub refuses when a job is submitted is refused here in the same words. Two things do not apply: there is no
    project, so that its data's schema counts only where it is given, and nobody has uploaded `initial`.

    Sums of a job with `secure_aggregation` are made in its ring, but no masks are put on and taken off: they would hide
    nothing from the process that has them all. The model has the bits of the masked run.

    Args:
        workflow: in place of the one that is installed under the job's `workflow`; lineage has its name.
        submitted: what the owner has written, where `job` is that for other sites than its own: a hub's refusals are
            of this; None: `job` is it.
        schema: of the project's data; None: it is not known.
        initial: bytes of the first model, where the job names one.
        journal: of an earlier pass that was interrupted; it is added to. Its objects go with it.
        told: is told news: kind, round, data.
        published: is given each version: bytes of its tensor file, and its lineage.
        secret: the source of what nobody may foretell, such as the seeds of central noise.
        sites_add_noise: whether `MemorySite.work` adds the noise of `task.privacy` to all that it answers. Without it,
            a job whose sites add noise (placement local or distributed) is refused, for its model would have none.

    Raises:
        HanseError: INVALID_INPUT for a job that cannot be done here; what the run failed by (`RunFailure`).
    """
    job, submitted = completed_job(job, schema), None if submitted is None else completed_job(submitted, schema)
    members = job.participants.sampled(len(sites)) if submitted is None else None
    submitted = submitted or job
    conducting = check_submitted(submitted, workflow=workflow, schema=schema, members=members)
    if workflow is not None:
        job = as_conducted(job, workflow)
    if job.privacy is not None and job.privacy.placement != "central" and not sites_add_noise:
        expected = "central, in a run in memory: no site's ledger stands behind it"
        raise invalid("privacy.placement", job.privacy.placement, expected)
    if job.privacy is not None and job.privacy.metrics is not None and not sites_add_noise:
        raise invalid("privacy.metrics", "given", "absent, in a run in memory: no site's ledger stands behind it")
    if initial is not None and job.initial_model is not None:
        entries = read_entries(len(initial), lambda offset, length: initial[offset : offset + length])
        for warning in check_first_model(submitted, entries, features_schema(submitted, schema)):
            told("note", 0, {"warning": warning})
    if initial is not None and job.initial_model is None:
        raise invalid("initial", f"{len(initial)} bytes", "absent, for the job names no initial_model")
    if wrong := [name for name in sites if not re.fullmatch(SLUG, name)]:
        raise invalid("sites", wrong[0], "a name of lower-case letters, digits and inner hyphens, at most 63")
    kept = Journal() if journal is None else journal
    verbs = MemoryVerbs(
        _without_masks(job), sites, kept, initial=initial, told=told, published=published, secret=secret
    )  # fmt: skip
    try:
        _complete(_one_reason(conduct_prepared(conducting, verbs)))
        return _conducted(verbs, kept.objects)
    finally:
        if journal is None:
            kept.close()


def _complete(run: Coroutine[None, None, None]) -> None:
    """Run a coroutine to its end in this thread, also where a loop is running in it, which waits meanwhile."""
    around = _get_running_loop()
    _set_running_loop(None)
    try:
        # Not asyncio.run: it keeps Ctrl-C back until the workflow awaits something outside, which it never does.
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.get_loop().run_until_complete(run)
    finally:
        _set_running_loop(around)


async def _one_reason(run: Awaitable[None]) -> None:
    """Of several errors that ended computations side by side, raise the first that people can act on."""
    try:
        await run
    except BaseExceptionGroup as several:
        raise first_reason(several, HanseError) from several


def _without_masks(job: Job) -> Job:
    sums = job.secure_aggregation
    if sums is None:
        return job
    return job.model_copy(update={"secure_aggregation": sums.model_copy(update={"mode": "ring", "threshold": None})})


def _conducted(verbs: MemoryVerbs, objects: MemoryObjects) -> Conducted:
    outputs = {name: objects.read(ref) for name, ref in verbs.outputs.items()}
    versions = tuple(model.digest for model, _, _ in verbs.versions)
    if not verbs.versions:
        return Conducted(None, None, None, {}, versions, outputs, verbs.job)
    model, lineage, metrics = verbs.versions[-1]
    return Conducted(objects.read(model), model.digest, lineage, metrics, versions, outputs, verbs.job)
