"""Before the first model: what all sites' raw tables have in common, found as sums of counts (masked where the job
masks), so that every site prepares its columns alike (`hanse_learning.preparation`): one sum, and where rules need
quantiles one for each few bits of them."""

from __future__ import annotations

from typing import Any

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import PrivacyTerms, TaskKind
from hanse_learning.preparation.noisy import noisy_rings, settled
from hanse_learning.preparation.plan import (
    HISTOGRAM,
    TARGETS,
    balanced_weights,
    counted,
    declared,
    fitted,
    idle,
    needs_sums,
    rings,
    search,
)
from hanse_privacy.correlated.optimum import matrix_of
from hanse_privacy.joint import Computation
from hanse_schemas.job import Job
from hanse_schemas.preparation import Preparation
from hanse_schemas.prepare import Prepare
from hanse_workflows.failures import RunFailure
from hanse_workflows.joint_sums import Computing, JointSums
from hanse_workflows.round_asks import config_of
from hanse_workflows.verbs import Verbs
from hanse_workflows.workflow import Workflow

_NAMED = 20
"""Columns, so that a line stays one."""
_ONCE = (
    "where a site is missing that was in an earlier masked preparation, or a table has changed by a few rows, there is "
    "no second one: say what was found then, as prepare: {fitted: ...} (docs/preparation.md)"
)


async def conduct_prepared(workflow: Workflow, run: Verbs) -> None:
    """Conduct a run, of a job that has its preparation by then. Of one that leaves nothing behind, say so."""
    run.job = await prepared(run)
    await workflow.conduct(run)
    if not run.leaves:
        told = (
            "the workflow has ended without a model or another result: what it has told on its way is all that is left"
        )
        run.note("note", "leaves-nothing", round=0, reason=told)


async def prepared(run: Verbs) -> Job:
    """The job with what its columns' preparation is, found of all sites where the job does not have it already.

    Raises:
        RunFailure: QUORUM naming the sites that did not answer, and those that refused, with their reasons.
    """
    prepare = run.job.prepare
    if not isinstance(prepare, Prepare) or prepare.fitted is not None:
        return run.job
    rows: tuple[int, ...] = ()
    if needs_sums(prepare.rules, prepare.classes):
        found, rows = await _found(run, prepare)
    else:
        found = declared(prepare.rules)
    told = f"{len(prepare.columns)} columns are prepared to {len(found.outputs)} features"
    run.note("note", "prepared", round=0, reason=told, digest=found.digest)
    changed: dict[str, Any] = {"prepare": prepare.model_copy(update={"fitted": found})}
    if prepare.classes is not None:
        changed["train"] = _weighted(run, rows)
    return run.job.model_copy(update=changed)


def asked_of_tables(prepare: Prepare) -> dict[str, Any]:
    """What sites are told of a preparation. Pure."""
    return {"prepare": list(prepare.columns), **({} if prepare.classes is None else {"classes": prepare.classes})}


def rounds_after(job: Job) -> dict[str, Any]:
    """What sites are told of the rounds that follow a preparation with noise, so that the plan that their ledgers add
    the run up by is said before its first release. Pure."""
    config = config_of(job)
    return {"follows": {"train": config["train"], "evaluate": config["evaluate"]}}


def _weighted(run: Verbs, rows: tuple[int, ...]) -> dict[str, Any]:
    """The section `train` with the weights of classes that have so many rows."""
    try:
        weights = balanced_weights(rows)
    except HanseError as error:
        raise RunFailure(error.code, error.message, hint=error.hint) from None
    told = ", ".join(f"{weight:.6g}" for weight in weights)
    run.note("note", "class-weights", round=0, reason=f"class_weights: balanced is [{told}] of {sum(rows)} examples")
    return {**run.job.train, "loss": {**run.job.train["loss"], "class_weights": weights}}


def _idle(empty: list[str], same: list[str]) -> str:
    """Which columns tell nothing of anybody, in words; empty where there are none."""
    said = [f"no site has a cell of column {', '.join(empty[:_NAMED])}"] if empty else []
    said += [f"all cells are the same, at all sites, of column {', '.join(same[:_NAMED])}"] if same else []
    more = max(len(empty) - _NAMED, 0) + max(len(same) - _NAMED, 0)
    return "; ".join([*said, *([f"so it is of {more} more"] if more else [])])


def _rows(counts: Any, classes: int) -> tuple[int, ...]:
    """Rows by class, of the summed array."""
    found = tuple(int(each) for each in counts)
    if len(found) != classes or min(found) < 0:
        raise ValueError(f"{len(found)} classes, {classes} were expected")
    return found


async def _found(run: Verbs, prepare: Prepare) -> tuple[Preparation, tuple[int, ...]]:
    try:
        return await _of_sums(run, prepare)
    except RunFailure as failure:
        if run.job.secure_aggregation is None:
            raise
        raise RunFailure(failure.code, failure.message, hint=f"{failure.hint}; {_ONCE}") from None


async def _of_sums(run: Verbs, prepare: Prepare) -> tuple[Preparation, tuple[int, ...]]:
    """What is found, and the rows of each class, where these are counted."""
    members = await run.participants("prepare-participants")
    rules = prepare.rules
    section = asked_of_tables(prepare)
    terms, privacy = None, run.job.privacy
    if privacy is not None:
        rounds = run.job.rounds
        terms = PrivacyTerms(
            privacy=privacy, rounds=rounds, round=1, active=len(members), correlation=matrix_of(privacy, rounds)
        )
        section |= rounds_after(run.job)
    computing = Computing(TaskKind.PREPARE, lambda asked: section | dict(asked.settings), privacy=terms)
    sums = JointSums(run, computing, members)
    if privacy is not None:
        return await _of_noisy_sums(prepare, sums, of_sites=privacy.mechanism != "dp_sgd")
    ring = rings(counted(rules, prepare.classes or 0).arrays, len(members))
    made: dict[str, Any] = dict((await sums.compute(Computation("prepare", rings=ring))).facts)
    targets = made.pop(TARGETS, None)
    try:
        ordered = search(rules, made)
        while (question := ordered.question) is not None:
            asked, ring = {"quantiles": question.model_dump(mode="json")}, rings((HISTOGRAM,), len(members))
            told = await sums.compute(Computation(f"prepare-{question.depth}", settings=asked, rings=ring))
            ordered.take(dict[str, Any](told.facts)[HISTOGRAM])
        found = fitted(rules, made, ordered.found)
        if set_aside := int(made["set_aside"][0]):
            words = f"{set_aside} bad cells are set aside, as far as the sites tell it"
            run.note("note", "set-aside", round=0, reason=words)
        if said := _idle(*idle(rules, made)):
            run.note("note", "idle-columns", round=0, warning=said)
        return found, () if prepare.classes is None else _rows(targets, prepare.classes)
    except HanseError as error:
        raise RunFailure(error.code, error.message, hint=error.hint) from None
    except (TypeError, ValueError) as error:
        raise RunFailure(ErrorCode.TAMPERED, f"prepare: the sums are not of the columns: {error}") from None


async def _of_noisy_sums(prepare: Prepare, sums: JointSums, *, of_sites: bool) -> tuple[Preparation, tuple[int, ...]]:
    """The same of one sum with noise, which is all that the sites are charged for."""
    members = len(sums.members)
    told = await sums.compute(Computation("prepare", rings=noisy_rings(members)))
    try:
        return settled(prepare.rules, prepare.classes or 0, dict(told.facts), of_sites=of_sites, members=members)
    except HanseError as error:
        raise RunFailure(error.code, error.message, hint=error.hint) from None
    except (KeyError, TypeError, ValueError) as error:
        raise RunFailure(ErrorCode.TAMPERED, f"prepare: the sum is not of the columns: {error}") from None
