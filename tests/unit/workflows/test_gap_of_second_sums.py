"""By how many a second sum of pairwise masks is smaller: some sites of the difference may be the hub's."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hanse_fabric.messages import Masking, RingPlan, Tally
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_privacy.pairwise.thresholds import smallest_sum
from hanse_schemas.job import Job, check_job
from hanse_workflows import Verbs
from hanse_workflows.ask import Ask
from hanse_workflows.masking.masked_session import MaskedStep
from hanse_workflows.masking.masked_sums import summed_masked
from hanse_workflows.masking.pairwise import Pairwise
from hanse_workflows.masking.protocols import MaskedSession, plan_of_run
from hanse_workflows.outcomes import Answer, Gathered, Summed
from hanse_workflows.round_asks import training
from hanse_workflows.round_state import RoundState

MANY = tuple(f"site-{number:02}" for number in range(20))
MINIMUM, THRESHOLD = 3, 18


class Shared(Pairwise):
    """Pairwise sessions whose secrets are shared already. `met` has who was in each."""

    def __init__(self, run: Verbs) -> None:
        assert run.job.secure_aggregation is not None
        super().__init__(run, run.job.secure_aggregation)
        self.met: list[tuple[str, ...]] = []

    async def prepare(
        self, session: str, ask: Ask, chosen: tuple[str, ...], *, least: Callable[[int], int],
        plan: RingPlan | None = None, above: int = 0,
    ) -> MaskedSession:  # fmt: skip
        self.met.append(chosen)
        ring = plan or plan_of_run(self._run, self._settings, len(chosen), ask)
        masking = Masking(mode=self.mode, session=session, minimum=self._settings.minimum, ring=ring)
        return MaskedSession(masking, chosen, needed=min(THRESHOLD, len(chosen)))


def job_of(colluding: int) -> Job:
    sums = {"mode": "pairwise", "minimum": MINIMUM, "colluding": colluding}
    body = {"rounds": 1, "model": {"name": "linear"}, "participants": {"minimum": 8, "quorum": 0.1}}
    return check_job(body | {"secure_aggregation": sums})


async def sums_of(colluding: int, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Who is in the sums of a step of whose first one an aggregator refuses an answer."""

    async def answers(_step: MaskedStep, session: MaskedSession, ask: Ask) -> tuple[Ask, Gathered]:
        return ask, Gathered(asked=session.to, answers=tuple(Answer(participant=name) for name in session.to))

    async def summed(_step: MaskedStep, _session: MaskedSession, number: int, answers: tuple[Answer, ...]) -> Summed:
        names = tuple(answer.participant for answer in answers)
        if number == 1:
            return Summed(participants=names, refused=names[-1:])
        return Summed(participants=names, tally=Tally(weight=1.0))

    monkeypatch.setattr(MaskedStep, "answers", answers)
    monkeypatch.setattr(MaskedStep, "sum", summed)
    job = job_of(colluding)
    fields: dict[str, Any] = {"project": "p", "run": "a" * 12, "job": job, "binds": True, "of_first_release": False}
    protocol = Shared(run := cast("Verbs", SimpleNamespace(**fields)))
    asked = training(job, MANY, 1, ref_of_bytes(b"model"))
    await summed_masked(run, protocol, "r1-train", "r1-sum", asked, RoundState())
    return protocol.met


@pytest.mark.parametrize("colluding", [0, 1, 2])
async def test_a_second_sum_lacks_the_minimum_of_sites_that_do_not_collude(
    colluding: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await sums_of(colluding, monkeypatch)
    assert first == MANY
    assert set(second) < set(first)
    # The least honest sites that the hub can have unmasked the first time, against all of the second.
    assert len(second) == smallest_sum(len(MANY), THRESHOLD, colluding) - MINIMUM
