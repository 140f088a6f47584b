"""The model that a run begins with: the owner's, or one that a participant makes."""

from __future__ import annotations

from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import ObjectRef, TaskKind
from hanse_fabric.names import derive_seed
from hanse_workflows.ask import Ask
from hanse_workflows.attendance import sample
from hanse_workflows.failures import RunFailure
from hanse_workflows.gathering import gather
from hanse_workflows.next_model import reduce, sent_by
from hanse_workflows.outcomes import Gathered
from hanse_workflows.round_asks import config_of
from hanse_workflows.verbs import Verbs

_INITIALIZE_SECONDS = 60.0
_OTHER_INITIALIZERS = 3


async def first_model(run: Verbs) -> ObjectRef:
    """The owner's uploaded model, or one that a participant initialises from the run's seed: any of them makes the
    same, so the first answer is enough."""
    job = run.job
    present = await run.participants("r0-participants")
    if job.initial_model is not None:
        return await run.initial_model(job.initial_model)
    chosen = sample(present, job, 0)
    made = await initialized(run, chosen)
    adopted = await reduce(run, "r0-adopt", round=0, answers=made.answers[:1], model=None, needed=1)
    run.forget(sent_by(made.answers))
    return adopted.model


async def initialized(run: Verbs, chosen: tuple[str, ...]) -> Gathered:
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
        return await gather(run, "r0-initialize", asking(chosen[:1], min(wanted.deadline, _INITIALIZE_SECONDS), 0))
    except RunFailure as failure:
        if failure.code is not ErrorCode.QUORUM or len(chosen) == 1:
            raise
    while True:
        others = chosen[asked : asked + _OTHER_INITIALIZERS]
        step = "r0-initialize-others" if asked == 1 else f"r0-initialize-others-{asked}"
        asked += len(others)
        try:
            return await gather(run, step, asking(others, wanted.deadline, wanted.retries))
        except RunFailure as failure:
            if failure.code is not ErrorCode.QUORUM or asked >= len(chosen):
                raise
