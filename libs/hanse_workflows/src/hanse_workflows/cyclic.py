"""Cyclic weight transfer (Chang et al., 2018): in each round one site after another trains the model that the one
before has made. A site's update is seen by the next site, so nothing can be summed under masks."""

from __future__ import annotations

from dataclasses import replace

from hanse_fabric.errors import invalid
from hanse_schemas.job import Job
from hanse_workflows.first_model import first_model
from hanse_workflows.lineage import lineage_of
from hanse_workflows.round_asks import training
from hanse_workflows.round_state import RoundState
from hanse_workflows.rounds import train
from hanse_workflows.verbs import Verbs
from hanse_workflows.workflow import Workflow


async def cyclic_weight_transfer(run: Verbs) -> None:
    """Pass the model from site to site, in the order of their names; a version after each round."""
    job, state, parent = run.job, RoundState(), run.job.initial_model
    model = await first_model(run)
    for number in range(1, job.rounds + 1):
        with run.round(number):
            present = await run.participants(f"r{number}-participants")
            run.note("round-started", f"r{number}", round=number, participants=list(present), rounds=job.rounds)
            for place, name in enumerate(present, start=1):
                asked = replace(training(job, (name,), number, model), needed=1, peers=len(present))
                trained = await train(run, None, asked, state, prefix=f"r{number}-p{place}")
                model, state = trained.reduction.model, state.after(number, trained.reduction)
            lineage = lineage_of(run, number, trained, parent).model_copy(update={"participants": present})
            metrics, final = trained.metrics.overall, number == job.rounds
            version = await run.publish(
                f"r{number}-publish", model=model, lineage=lineage, metrics=metrics, final=final
            )
            parent = version.digest
            run.note("round-finished", f"r{number}", round=number, metrics=metrics, participants=list(present))


def check(job: Job) -> None:
    """Refuse what needs several sites at once."""
    if job.secure_aggregation is not None:
        raise invalid("secure_aggregation.mode", job.secure_aggregation.mode, "absent (a sum of one site)")


workflow = Workflow(cyclic_weight_transfer, check)
