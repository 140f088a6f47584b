"""Federated averaging (McMahan et al., 2017), and with a server optimizer its adaptive forms (Reddi et al., 2021).

Each round: sample participants, have them train, reduce their updates to the next model, evaluate it at the sites,
publish it. What the reduction and the server optimizer do is the strategy's business, at the aggregators.
"""

from __future__ import annotations

from dataclasses import replace

from hanse_workflows.first_model import first_model
from hanse_workflows.lineage import lineage_of
from hanse_workflows.masking.protocols import protocol_of
from hanse_workflows.metrics import EarlyStopping, RoundMetrics
from hanse_workflows.round_asks import due, evaluation, training
from hanse_workflows.round_state import RoundState
from hanse_workflows.rounds import evaluate, train
from hanse_workflows.sampling import sample
from hanse_workflows.verbs import Verbs
from hanse_workflows.workflow import Workflow


async def federated_averaging(run: Verbs) -> None:
    """Train until the last round, or until early stopping.

    Raises:
        RunFailure: QUORUM, TIMEOUT, or why an answer, a sum or a version was refused.
    """
    job = run.job
    stopping, protocol = EarlyStopping(job.stop), protocol_of(run)
    state = RoundState()
    parent: str | None = job.initial_model
    model = await first_model(run)
    for number in range(1, job.rounds + 1):
        with run.round(number):
            present = await run.participants(f"r{number}-participants")
            chosen, state = sample(present, job, number), state.seeing(present)
            run.note("round-started", f"r{number}", round=number, participants=list(chosen), rounds=job.rounds)

            asked = replace(training(job, chosen, number, model), trained=state.counted)
            trained = await train(run, protocol, asked, state)
            model, state = trained.reduction.model, state.after(number, trained.reduction)

            evaluated, stop = RoundMetrics(), ""
            if due(job.evaluate.every, number, job.rounds):
                asked = replace(evaluation(job, chosen, number, model), trained=state.counted)
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


workflow = Workflow(federated_averaging)
