"""What a round asks of its participants: training, and evaluation of what came of it. Pure."""

from __future__ import annotations

from typing import Any

from hanse_fabric.messages import ObjectRef, TaskKind
from hanse_learning.binding import bound_to, task_seed
from hanse_learning.pooled.layout import counts_of_job, told_of
from hanse_schemas.job import Job
from hanse_schemas.prepare import Prepare
from hanse_workflows.ask import Ask
from hanse_workflows.gathering import patience_of
from hanse_workflows.per_job import per_job
from hanse_workflows.quorum import quorum_of
from hanse_workflows.round_state import info_named
from hanse_workflows.workflow import plugins_of

_bound = per_job(bound_to)


def training(job: Job, chosen: tuple[str, ...], number: int, model: ObjectRef) -> Ask:
    """What a round asks of its participants. Pure."""
    return _asked(TaskKind.TRAIN, job, chosen, number, model)


def evaluation(job: Job, chosen: tuple[str, ...], number: int, model: ObjectRef) -> Ask:
    """Evaluation of the round's new model, at the round's participants. Pure."""
    return _asked(TaskKind.EVALUATE, job, chosen, number, model)


def _asked(kind: TaskKind, job: Job, chosen: tuple[str, ...], number: int, model: ObjectRef) -> Ask:
    wanted, seeds = job.participants, {name: task_seed(kind, job.seed, number, name) for name in chosen}
    return Ask(
        kind=kind, round=number, to=chosen, config=config_of(job), model=model, bound=_bound(job),
        seed=seeds.__getitem__,
        needed=quorum_of(job, len(chosen)).quorum, grace=wanted.grace, deadline=wanted.deadline, retries=wanted.retries,
    )  # fmt: skip


def after_training(job: Job, number: int) -> str:
    """Key of the step that follows a round's training, of the same participants; empty where there is none. Pure."""
    if due(job.evaluate.every, number, job.rounds):
        return evaluate_key(number)
    return after_evaluation(job, number)


def after_evaluation(job: Job, number: int) -> str:
    """Key of the step that follows a round's evaluation, of the same participants, as far as one can know; empty where
    there is none, where each round has others, and where the next training sums in its middle. Pure."""
    if number >= job.rounds or job.participants.fraction < 1 or patience_of(job, number + 1) is not None:
        return ""
    return train_key(number + 1)


def train_key(number: int) -> str:
    """Key of a round's training."""
    return f"r{number}-train"


def evaluate_key(number: int) -> str:
    """Key of a round's evaluation."""
    return f"r{number}-evaluate"


def due(every: int, number: int, rounds: int) -> bool:
    """Whether round `number` is one of every `every`, or the last. Pure."""
    return every > 0 and (number % every == 0 or number == rounds)


@per_job
def config_of(job: Job) -> dict[str, Any]:
    """What the trainer at the sites needs of the job. Pure."""
    info, plugins = info_named(job), plugins_of(job)
    counts = counts_of_job(job)
    counted: dict[str, Any] = {} if counts is None else {"counts": told_of(counts)}
    if counted and job.evaluate.optional:
        counted["optional"] = True
    fitted = job.prepare.fitted if isinstance(job.prepare, Prepare) else None
    return {
        **({"info": list(info)} if info else {}),
        **({"plugins": plugins} if plugins else {}),
        **({} if fitted is None else {"preparation": fitted.model_dump(mode="json")}),
        "model": job.model,
        "train": job.train,
        "code": None if job.code is None else job.code.model_dump(mode="json"),
        "evaluate": {"every": job.evaluate.every} | counted,
        # Which parameters a masked sum is of, its ring says.
        **({} if job.codec is None or job.secure_aggregation else {"codec": job.codec.model_dump(mode="json")}),
    }
