"""Before a run: what its sites say of the job, asked of all who are there. Nobody trains, and nobody is charged."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import FindingCode, Masking, PrivacyTerms, SiteCheck, TaskKind
from hanse_fabric.names import derive_seed
from hanse_learning.preparation.plan import needs_sums
from hanse_privacy.correlated.optimum import matrix_of
from hanse_schemas.job import Job
from hanse_schemas.prepare import Prepare
from hanse_workflows.ask import Ask
from hanse_workflows.failures import RunFailure
from hanse_workflows.outcomes import Gathered
from hanse_workflows.preparing import asked_of_tables
from hanse_workflows.quorum import quorum_of
from hanse_workflows.round_asks import config_of
from hanse_workflows.verbs import Verbs

ANSWER_WITHIN_S = 20.0
"""A site that is there answers at once, unless it looks at its data for the first time."""
STEP = "preflight"
MOST_ASKED = 1_000
_NO_SUCH_TASK = frozenset({ErrorCode.INVALID_INPUT.code, ErrorCode.UNKNOWN_SCHEMA.code})
"""How release 0.1.0 refuses a task of a kind that it does not know."""


def question(job: Job, to: tuple[str, ...], masking: Masking | None = None) -> Ask:
    """What sites are asked of a job, in one step outside its rounds. Pure.

    Args:
        masking: how the run's answers will be masked.
    """
    wanted = job.participants
    # A site's budget is for the rounds in which it takes part; of those that are drawn, so many on average.
    rounds = max(1, math.ceil(job.rounds * wanted.fraction))
    config = {"kinds": kinds_of(job), "rounds": rounds}
    if job.study is None:
        config |= config_of(job)
        if isinstance(job.prepare, Prepare):
            config |= asked_of_tables(job.prepare)
    else:
        config["study"] = job.study.model_dump(mode="json")
    peers = wanted.sampled(len(to)) if job.study is None else len(to)
    terms = None
    if job.privacy is not None:
        terms = PrivacyTerms(
            privacy=job.privacy, rounds=job.rounds, round=1, active=max(1, peers),
            correlation=matrix_of(job.privacy, job.rounds),
        )  # fmt: skip
    return Ask(
        kind=TaskKind.CHECK, round=0, to=to, config=config, seed=lambda _name: job.seed, model=None, needed=0,
        grace=None, deadline=ANSWER_WITHIN_S, retries=0, peers=max(1, peers), masking=masking, privacy=terms,
    )  # fmt: skip


def kinds_of(job: Job) -> list[str]:
    """Of the tasks that touch a site's data in this job's run. Pure."""
    if job.study is not None:
        return [TaskKind.STUDY.value]
    prepare = job.prepare
    sums = isinstance(prepare, Prepare) and prepare.fitted is None and needs_sums(prepare.rules, prepare.classes)
    found = [TaskKind.PREPARE.value] if sums else []
    return [*found, TaskKind.TRAIN.value, *([TaskKind.EVALUATE.value] if job.evaluate.every else [])]


def said(gathered: Gathered) -> Mapping[str, SiteCheck | str]:
    """By site what it says, or why it says nothing. Pure."""
    found: dict[str, SiteCheck | str] = dict.fromkeys(gathered.silent, "it did not answer in time")
    for failure in gathered.failures:
        old = failure.code in _NO_SUCH_TASK
        found[failure.participant] = "its release does not know the question" if old else failure.reason or failure.code
    for answer in gathered.answers:
        try:
            found[answer.participant] = SiteCheck.decode(answer.payload or b"")
        except HanseError as error:
            found[answer.participant] = f"what it says cannot be read: {error.code.code}"
    return {name: found[name] for name in sorted(found)}


def asked_of(job: Job, there: tuple[str, ...]) -> tuple[str, ...]:
    """Whose budgets are asked for: all, or of very many as many as one entry of a journal holds. Pure, sorted."""
    if len(there) <= MOST_ASKED:
        return there
    chooser = random.Random(derive_seed(job.seed, 0, STEP))  # noqa: S311 - repeatable, not secret
    return tuple(sorted(chooser.sample(there, MOST_ASKED)))


async def require_budgets(run: Verbs) -> None:
    """Before a private run charges anybody: of no more sites is the budget too small for it, as far as they say, than a
    round's quorum can miss.

    Raises:
        RunFailure: POLICY naming the sites.
    """
    if run.job.privacy is None:
        return
    there = await run.participants(f"{STEP}-participants")
    answers = said(await run.ask(STEP, question(run.job, asked_of(run.job, there))))
    short = [
        name
        for name, each in answers.items()
        if isinstance(each, SiteCheck) and any(finding.code is FindingCode.SHORT for finding in each.findings)
    ]
    wanted, names = run.job.participants, ", ".join(short)
    members = wanted.sampled(len(there))
    if short and quorum_of(run.job, members).why_not(len(short)):
        raise RunFailure(
            ErrorCode.POLICY,
            f"privacy: the budget of {names} does not suffice for this run; nobody was charged",
            hint="lower privacy.epsilon or rounds, or have these sites' administrators decide, in their policies",
        )
    if short:
        told = f"the budget of {names} does not suffice for this run, whose quorum can do without"
        run.note("note", STEP, round=0, reason=told)
