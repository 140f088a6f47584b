"""Before the first model: what all sites' raw tables have in common, found as sums of counts (masked where the job
masks), so that every site prepares its columns alike (`hanse_learning.preparation`): one sum, and where rules need
quantiles one for each few bits of them."""

from __future__ import annotations

from typing import Any

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import TaskKind
from hanse_genomics.verbs import Asked
from hanse_learning.preparation.plan import HISTOGRAM, counted, declared, fitted, needs_sums, rings, search
from hanse_schemas.job import Job
from hanse_schemas.preparation import Preparation
from hanse_schemas.prepare import Prepare
from hanse_workflows.failures import RunFailure
from hanse_workflows.joint_sums import Computing, JointSums
from hanse_workflows.verbs import Verbs
from hanse_workflows.workflow import Workflow

SUMS = "sums"
_ONCE = (
    "where a site is missing that was in an earlier masked preparation, or a table has changed by a few rows, there is "
    "no second one: say what was found then, as prepare: {fitted: ...} (docs/preparation.md)"
)


async def conduct_prepared(workflow: Workflow, run: Verbs) -> None:
    """Conduct a run, of a job that has its preparation by then."""
    run.job = await prepared(run)
    await workflow.conduct(run)


async def prepared(run: Verbs) -> Job:
    """The job with what its columns' preparation is, found of all sites where the job does not have it already.

    Raises:
        RunFailure: QUORUM naming the sites that did not answer, and those that refused, with their reasons.
    """
    prepare = run.job.prepare
    if not isinstance(prepare, Prepare) or prepare.fitted is not None:
        return run.job
    found = await _found(run, prepare) if needs_sums(prepare.rules) else declared(prepare.rules)
    told = f"{len(prepare.columns)} columns are prepared to {len(found.outputs)} features"
    run.note("note", "prepared", round=0, reason=told, digest=found.digest)
    return run.job.model_copy(update={"prepare": prepare.model_copy(update={"fitted": found})})


async def _found(run: Verbs, prepare: Prepare) -> Preparation:
    try:
        return await _of_sums(run, prepare)
    except RunFailure as failure:
        if run.job.secure_aggregation is None:
            raise
        raise RunFailure(failure.code, failure.message, hint=f"{failure.hint}; {_ONCE}") from None


async def _of_sums(run: Verbs, prepare: Prepare) -> Preparation:
    members = await run.participants("prepare-participants")
    rules = prepare.rules
    section = {"prepare": list(prepare.columns)}
    # By the run's own protocol: what it has recorded of keys, the rounds go on with.
    masks = run.job.secure_aggregation
    computing = Computing(
        TaskKind.PREPARE, {}, lambda asked: section | dict(asked.settings), "participants", masks, replayed=True
    )
    sums = JointSums(run, computing, members)
    ring = rings(counted(rules).arrays, len(members))
    made: dict[str, Any] = dict((await sums.compute(Asked("prepare", SUMS, rings=ring))).facts)
    try:
        ordered = search(rules, made)
        while (question := ordered.question) is not None:
            asked, ring = {"quantiles": question.model_dump(mode="json")}, rings((HISTOGRAM,), len(members))
            told = await sums.compute(Asked(f"prepare-{question.depth}", SUMS, settings=asked, rings=ring))
            ordered.take(dict[str, Any](told.facts)[HISTOGRAM])
        found = fitted(rules, made, ordered.found)
        if set_aside := int(made["set_aside"][0]):
            words = f"{set_aside} bad cells are set aside, as far as the sites tell it"
            run.note("note", "set-aside", round=0, reason=words)
        return found
    except HanseError as error:
        raise RunFailure(error.code, error.message, hint=error.hint) from None
    except (TypeError, ValueError) as error:
        raise RunFailure(ErrorCode.TAMPERED, f"prepare: the sums are not of the columns: {error}") from None
