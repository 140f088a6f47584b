"""Federated averaging (McMahan et al., 2017), and with a server optimizer its adaptive forms (Reddi et al., 2021).

Each round: sample participants, have them train, reduce their updates to the next model, evaluate it at the sites,
publish it. What the reduction and the server optimizer do is the strategy's business, at the aggregators.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

from hanse_coordinator.workflow.carried import Carried, info_named
from hanse_coordinator.workflow.context import Ask, RunContext
from hanse_coordinator.workflow.failures import RunFailure
from hanse_coordinator.workflow.masking import protocol_of
from hanse_coordinator.workflow.metrics import EarlyStopping, RoundMetrics
from hanse_coordinator.workflow.outcomes import Gathered
from hanse_coordinator.workflow.rounds import Trained, evaluate, train
from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import Lineage, ObjectRef, TaskKind
from hanse_fabric.names import derive_seed
from hanse_learning.server.config.foreign import plugins_of
from hanse_schemas.job import Job

_INITIALIZE_SECONDS = 60.0
_OTHER_INITIALIZERS = 3
LARGEST_COHORT = 4_000
"""Participants of one round: their answers are one entry of the journal (deflated: 72 bytes each with two metrics, 215
with the longest names and eight), which is one message of the bus (1 MiB). Projects may have any number, of whom a
round samples its share."""
LARGEST_MASKED_COHORT = 2_500
"""The same where answers are masked: each has a sealed seed and a tally besides (300 bytes, at most 400)."""


async def federated_averaging(run: RunContext) -> None:
    """Train until the last round, or until early stopping."""
    job = run.job
    stopping, protocol = EarlyStopping(job.stop), protocol_of(run)
    carried = Carried()
    parent: str | None = job.initial_model
    model = await first_model(run)
    for number in range(1, job.rounds + 1):
        with run.round(number):
            present = await run.participants(f"r{number}-participants")
            chosen, carried = sample(present, job, number), carried.seeing(present)
            run.note("round-started", f"r{number}", round=number, participants=list(chosen), rounds=job.rounds)

            asked = replace(training(job, chosen, number, model), trained=carried.counted)
            trained = await train(run, protocol, asked, carried)
            model, carried = trained.reduction.model, carried.after(number, trained.reduction)

            evaluated, stop = RoundMetrics(), ""
            if due(job.evaluate.every, number, job.rounds):
                asked = replace(evaluation(job, chosen, number, model), trained=carried.counted)
                evaluated = await evaluate(run, protocol, asked)
                stop = stopping.observe(evaluated.overall)

            final = bool(stop) or number == job.rounds
            overall = trained.metrics.overall | evaluated.overall
            if final or (job.checkpoint_every and number % job.checkpoint_every == 0):
                lineage = lineage_of(run, number, trained, parent)
                version = await run.publish(
                    f"r{number}-publish", model=model, lineage=lineage, metrics=overall, final=final
                )
                parent = version.digest
            run.note(
                "round-finished", f"r{number}", round=number, metrics=overall, sites=evaluated.sites, stop=stop,
                participants=list(trained.reduction.participants), digest=model.digest,
                bytes=(trained.metrics.traffic + evaluated.traffic).body(),
            )  # fmt: skip
        if final:
            return


async def first_model(run: RunContext) -> ObjectRef:
    """The owner's uploaded model, or one that a participant initialises from the run's seed: any of them makes the
    same, so the first answer is enough."""
    job = run.job
    present = await run.participants("r0-participants")
    if job.initial_model is not None:
        return await run.initial_model(job.initial_model)
    chosen = sample(present, job, 0)
    made = await initialized(run, chosen)
    adopted = await run.reduce("r0-adopt", round=0, answers=made.answers[:1], model=None, state={}, needed=1)
    return adopted.model


async def initialized(run: RunContext, chosen: tuple[str, ...]) -> Gathered:
    """One participant is asked; where that one is silent or cannot, the others, a few together. (Whoever is asked at
    the same time as one that is faster has begun in vain, and takes seconds to drop it.)"""
    job = run.job
    seed = derive_seed(job.seed, "initialize")

    def asking(to: tuple[str, ...], deadline: float, retries: int) -> Ask:
        return Ask(
            kind=TaskKind.INITIALIZE, round=0, to=to, peers=len(chosen), config=config_of(job), seed=lambda _: seed,
            model=None, needed=1, grace=0.0, deadline=deadline, retries=retries,
        )  # fmt: skip

    wanted, asked = job.participants, 1
    try:
        return await run.gather("r0-initialize", asking(chosen[:1], min(wanted.deadline, _INITIALIZE_SECONDS), 0))
    except RunFailure as failure:
        if failure.code is not ErrorCode.QUORUM or len(chosen) == 1:
            raise
    while True:
        others = chosen[asked : asked + _OTHER_INITIALIZERS]
        step = "r0-initialize-others" if asked == 1 else f"r0-initialize-others-{asked}"
        asked += len(others)
        try:
            return await run.gather(step, asking(others, wanted.deadline, wanted.retries))
        except RunFailure as failure:
            if failure.code is not ErrorCode.QUORUM or asked >= len(chosen):
                raise


def training(job: Job, chosen: tuple[str, ...], number: int, model: ObjectRef) -> Ask:
    """What a round asks of its participants. Pure."""
    wanted = job.participants
    return Ask(
        kind=TaskKind.TRAIN, round=number, to=chosen, config=config_of(job), model=model,
        seed=lambda participant: derive_seed(job.seed, number, participant, "train"),
        needed=wanted.needed(len(chosen)), grace=wanted.grace, deadline=wanted.deadline, retries=wanted.retries,
    )  # fmt: skip


def evaluation(job: Job, chosen: tuple[str, ...], number: int, model: ObjectRef) -> Ask:
    """Evaluation of the round's new model, at the round's participants. Pure."""
    wanted = job.participants
    return Ask(
        kind=TaskKind.EVALUATE, round=number, to=chosen, config=config_of(job), model=model,
        seed=lambda participant: derive_seed(job.seed, number, participant, "evaluate"),
        needed=wanted.needed(len(chosen)), grace=wanted.grace, deadline=wanted.deadline, retries=wanted.retries,
    )  # fmt: skip


def sample(present: tuple[str, ...], job: Job, number: int) -> tuple[str, ...]:
    """A round's participants, sorted: the job's share of those present, by the run's seed. Pure.

    Raises:
        RunFailure: TOO_LARGE for more than a round can have.
    """
    wanted = job.participants
    count = min(len(present), max(wanted.minimum, math.ceil(wanted.fraction * len(present) - 1e-9)))
    most = LARGEST_COHORT if job.secure_aggregation is None else LARGEST_MASKED_COHORT
    if count > most:
        raise RunFailure(
            ErrorCode.TOO_LARGE,
            f"participants: {count} of {len(present)} would take part in a round, at most {most} can",
            hint=f"set participants.fraction to {math.floor(10_000 * most / len(present)) / 10_000:.4f} or less",
        )
    if count == len(present):
        return present
    chooser = random.Random(derive_seed(job.seed, number, "sample"))  # noqa: S311 - repeatable, not secret
    return tuple(sorted(chooser.sample(present, count)))


def due(every: int, number: int, rounds: int) -> bool:
    """Whether round `number` is one of every `every`, or the last. Pure."""
    return every > 0 and (number % every == 0 or number == rounds)


def config_of(job: Job) -> dict[str, Any]:
    """What the trainer at the sites needs of the job. Pure."""
    info, plugins = info_named(job), plugins_of(job)
    return {
        **({"info": list(info)} if info else {}),
        **({"plugins": plugins} if plugins else {}),
        "model": job.model,
        "train": job.train,
        "code": None if job.code is None else job.code.model_dump(mode="json"),
        "evaluate": job.evaluate.model_dump(mode="json"),
    }


def lineage_of(run: RunContext, number: int, trained: Trained, parent: str | None) -> Lineage:
    """Where a round's model came from: those whose updates are in it."""
    codes = sorted({answer.code_digest for answer in trained.answers if answer.code_digest is not None})
    return Lineage(
        run=run.run, round=number, workflow=run.job.workflow, participants=trained.reduction.participants,
        examples=trained.examples, strategy=run.job.strategy, seed=run.job.seed, parent=parent,
        code_digests=tuple(codes), reduced_on=_devices(trained), plugins=plugins_of(run.job) or None,
    )  # fmt: skip


def _devices(trained: Trained) -> tuple[str, ...] | None:
    device = trained.reduction.device
    return None if device is None else tuple(device.split(", "))
