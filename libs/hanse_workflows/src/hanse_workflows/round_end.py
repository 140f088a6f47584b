"""The end of a round, whichever way its model was made: evaluated, published where that is due, told of."""

from __future__ import annotations

from dataclasses import replace

from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import Lineage
from hanse_workflows.attendance import sample
from hanse_workflows.failures import RunFailure
from hanse_workflows.line_budget import LineBudget
from hanse_workflows.masking.protocols import MaskingProtocol
from hanse_workflows.metrics import EarlyStopping, RoundMetrics, Verdict
from hanse_workflows.quorum import too_few
from hanse_workflows.round_asks import after_evaluation, due, evaluation
from hanse_workflows.round_state import RoundState, shared_from
from hanse_workflows.rounds import TrainedRound, evaluate
from hanse_workflows.signs import Signs
from hanse_workflows.traffic import by_formula
from hanse_workflows.verbs import Verbs
from hanse_workflows.workflow import plugins_of


class RoundEnds:
    """The ends of a run's rounds.

    Args:
        protocol: how evaluations are masked; None: not at all.
    """

    def __init__(self, run: Verbs, protocol: MaskingProtocol | None) -> None:
        self._run, self._protocol = run, protocol
        self._stopping, self.lines = EarlyStopping(run.job.stop), LineBudget(run.job)
        self._signs, self._parent = Signs(), run.job.initial_model

    def choose(
        self, present: tuple[str, ...], number: int, *, resting: frozenset[str] = frozenset()
    ) -> tuple[str, ...]:
        """A round's participants, of those present whose lines suffice, and who are not resting.

        Raises:
            RunFailure: QUORUM where these are too few; TOO_LARGE for more than a round can have.
        """
        job, wanted = self._run.job, self._run.job.participants
        able = self.lines.able(present, evaluated=due(job.evaluate.every, number, job.rounds))
        if out := sorted(set(present) - set(able)):
            reason = f"participants.bytes_each: {wanted.bytes_each} bytes are all but spent; they sit out from here on"
            self._run.note("note", f"r{number}/lines", round=number, participants=out, reason=reason)
        if self.lines.each is not None and len(able) < wanted.minimum:
            raise too_few(
                f"round {number}", len(able), len(present), "have bytes left (participants.bytes_each)", wanted.minimum,
                hint="raise participants.bytes_each, or let a codec make updates smaller",
            )  # fmt: skip
        return sample(able, job, number, resting=resting)

    async def end(self, number: int, chosen: tuple[str, ...], trained: TrainedRound, state: RoundState) -> bool:
        """End a round; returns whether it was the last.

        Args:
            chosen: who evaluates: the round's participants.

        Raises:
            RunFailure: QUORUM where too few evaluate; what the registry refused; INVALID_INPUT for a metric to stop by
                that the sites do not report.
        """
        run, job, model = self._run, self._run.job, trained.reduction.model
        evaluated, verdict, shared = RoundMetrics(), Verdict(), number >= shared_from(job)
        if due(job.evaluate.every, number, job.rounds):
            then = after_evaluation(job, number)
            asked = replace(evaluation(job, chosen, number, model), trained=state.counted, then=then)
            evaluated = await evaluate(run, self._protocol, asked, state.carrier)
            # One site's own model is neither the best of the run nor its last.
            verdict = self._stopping.observe(evaluated.overall, evaluated.undefined) if shared else verdict
            for place, warning in enumerate(self._signs.observe(evaluated.overall)):
                run.note("note", f"r{number}/signs-{place}", round=number, warning=warning)
        self.lines.charge(trained.metrics.traffic, evaluated.traffic)
        again = due(job.evaluate.every, number + 1, job.rounds)
        stop = verdict.stop or self.lines.over(state.known, evaluated=again)
        if stop and not shared:
            raise RunFailure(
                ErrorCode.QUORUM, f"{stop}; the run cannot end with round {number}, for a jump-start's model is one "
                "site's own and never published",
                hint="raise participants.bytes_each, or let a codec make updates smaller",
            )  # fmt: skip
        best = verdict.best and job.keep == "best"
        final = bool(stop) or number == job.rounds
        overall = trained.metrics.overall | evaluated.overall
        if final or best or (shared and job.checkpoint_every and number % job.checkpoint_every == 0):
            lineage = lineage_of(run, number, trained, self._parent)
            await run.publish(
                f"r{number}-publish", model=model, lineage=lineage, metrics=overall, final=final, best=best
            )  # fmt: skip
            self._parent = model.digest
        run.note(
            "round-finished", f"r{number}", round=number, metrics=overall, sites=evaluated.sites, stop=stop,
            participants=list(trained.reduction.participants), digest=model.digest,
            **({"undefined": evaluated.undefined} if evaluated.undefined else {}),
            **({"curves": evaluated.curves} if evaluated.curves else {}),
            bytes=(trained.metrics.traffic + evaluated.traffic).body(),
            formula=by_formula(job, len(chosen), model, trained.bits),
        )  # fmt: skip
        return final


def lineage_of(run: Verbs, number: int, trained: TrainedRound, parent: str | None) -> Lineage:
    """Where a round's model came from: those whose updates are in it."""
    codes = sorted({answer.code_digest for answer in trained.answers if answer.code_digest is not None})
    return Lineage(
        run=run.run, round=number, workflow=run.job.workflow, participants=trained.reduction.participants,
        examples=trained.examples, strategy=run.job.strategy, seed=run.job.seed, parent=parent,
        code_digests=tuple(codes), reduced_on=_devices(trained), plugins=plugins_of(run.job) or None,
    )  # fmt: skip


def _devices(trained: TrainedRound) -> tuple[str, ...] | None:
    device = trained.reduction.device
    return None if device is None else tuple(device.split(", "))
