"""Federated averaging (McMahan et al., 2017), and with a server optimizer its adaptive forms (Reddi et al., 2021).

Each round: sample participants, have them train, reduce their updates to the next model, evaluate it at the sites,
publish it. What the reduction and the server optimizer do is the strategy's business, at the aggregators.
"""

from __future__ import annotations

from dataclasses import replace

from hanse_workflows.first_model import first_model
from hanse_workflows.masking import protocol_of
from hanse_workflows.noise import correlated_seed
from hanse_workflows.round_asks import after_training, training
from hanse_workflows.round_end import RoundEnds
from hanse_workflows.round_state import RoundState
from hanse_workflows.rounds import train
from hanse_workflows.verbs import Verbs
from hanse_workflows.workflow import Workflow


async def federated_averaging(run: Verbs) -> None:
    """Train until the last round, or until early stopping.

    Raises:
        RunFailure: QUORUM, TIMEOUT, or why an answer, a sum or a version was refused.
    """
    job, state, masked = run.job, RoundState(seed=await correlated_seed(run)), run.job.secure_aggregation
    protocol = None if masked is None else protocol_of(run, masked)
    ends = RoundEnds(run, protocol)
    model = await first_model(run)
    ends.lines.require_first(model)
    for number in range(1, job.rounds + 1):
        with run.round(number):
            present = await run.participants(f"r{number}-participants")
            state = state.among(job, present)
            able = tuple(name for name in present if not state.members or name in state.members)
            chosen = ends.choose(able, number, resting=state.resting(job, number))
            state = state.seeing(present).asking(number, chosen)
            run.note("round-started", f"r{number}", round=number, participants=list(chosen), rounds=job.rounds)
            asked = training(job, state.members or chosen, number, model)
            asked = replace(
                asked, trained=state.counted, training=chosen if state.members else (), then=after_training(job, number)
            )
            trained = await train(run, protocol, asked, state)
            model, state = trained.reduction.model, state.after(number, trained.reduction)
            state = state.weighing(trained.reduction.participants, trained.examples)
            if await ends.end(number, chosen, trained, state):
                return
            run.forget(trained.spent)


workflow = Workflow(federated_averaging)
