"""Cyclic weight transfer (Chang et al., 2018): in each round one site after another trains the model that the one
before has made. A site's update is seen by the next site, so nothing can be summed under masks."""

from __future__ import annotations

from dataclasses import replace

from hanse_fabric.errors import invalid
from hanse_learning.server.config import check_strategy
from hanse_learning.server.config.checks import check_participants
from hanse_schemas.job import Job
from hanse_workflows.first_model import first_model
from hanse_workflows.gathering import patience_of
from hanse_workflows.round_asks import training
from hanse_workflows.round_end import RoundEnds
from hanse_workflows.round_state import RoundState, shared_from
from hanse_workflows.rounds import TrainedRound, joined, train
from hanse_workflows.verbs import Verbs
from hanse_workflows.workflow import Workflow


async def cyclic_weight_transfer(run: Verbs) -> None:
    """Pass the model from site to site, in the order of their names, as often as the job has rounds.

    Raises:
        RunFailure: QUORUM where a site does not answer; TIMEOUT, or why an update or a version was refused.
    """
    job, state, ends = run.job, RoundState(), RoundEnds(run, None)
    model = await first_model(run)
    ends.lines.require_first(model)
    for number in range(1, job.rounds + 1):
        with run.round(number):
            present = await run.participants(f"r{number}-participants")
            chosen, state, passed = ends.choose(present, number), state.seeing(present), list[TrainedRound]()
            run.note("round-started", f"r{number}", round=number, participants=list(chosen), rounds=job.rounds)
            for place, name in enumerate(chosen, start=1):
                asked = training(job, (name,), number, model)
                asked = replace(asked, needed=1, peers=len(chosen), trained=state.counted)
                passed.append(await train(run, None, asked, state, prefix=f"r{number}-p{place}"))
                model, state = passed[-1].reduction.model, state.after(number, passed[-1].reduction)
            whole = joined(passed)
            if await ends.end(number, chosen, whole, state):
                return
            run.forget(whole.spent)


def check(job: Job) -> None:
    """Refuse what needs several sites at once, and what would not hold for one after another."""
    if job.secure_aggregation is not None:
        raise invalid("secure_aggregation.mode", job.secure_aggregation.mode, "absent (a sum of one site)")
    if job.participants.quorum < 1:
        raise invalid("participants.quorum", job.participants.quorum, "1 (each site of a round has its turn)")
    if job.participants.grace is not None:
        raise invalid("participants.grace", job.participants.grace, "absent (a turn ends with its one site's answer)")
    if job.weighting != "examples" and job.privacy is None:
        raise invalid("weighting", job.weighting, "examples (of one update there is no mean)")
    if job.privacy is not None and job.privacy.mechanism == "dp_ftrl":
        expected = "another (its noise is correlated from round to round, and here each turn has a sum of its own)"
        raise invalid("privacy.mechanism", job.privacy.mechanism, expected)
    if job.utility_preserving:
        raise invalid("utility_preserving", True, "false (sites train one after another, not on pooled data)")
    check_participants(check_strategy(job.strategy), 1, "updates of one turn:")
    if shared_from(job) > 1:
        raise invalid("train.algorithm.jump_start", "given", "absent (it takes the best of several sites' models)")
    if patience_of(job, 1) is not None:
        raise invalid("train.algorithm.name", job.train["algorithm"]["name"], "one without sums among sites")


workflow = Workflow(cyclic_weight_transfer, check)
