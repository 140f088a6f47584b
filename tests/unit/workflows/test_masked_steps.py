"""A masked step of which some do not answer, without a hub: who is asked again, and what is kept."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hanse_fabric.messages import ObjectRef, Tally, TaskKind
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_schemas.job import check_job
from hanse_workflows import Verbs
from hanse_workflows.ask import Ask
from hanse_workflows.gathering import patience_of
from hanse_workflows.masking.masked_session import MaskedStep
from hanse_workflows.masking.masked_sums import summed_masked
from hanse_workflows.masking.protocols import MaskedSession
from hanse_workflows.outcomes import Answer, Gathered, Summed
from hanse_workflows.round_asks import evaluation, training
from hanse_workflows.round_state import RoundState
from unit.workflows.test_gap_of_second_sums import MANY, Shared

UPDATE = ref_of_bytes(b"an update")
FEW = MANY[:10]


@pytest.mark.parametrize("kind", [TaskKind.TRAIN, TaskKind.EVALUATE])
async def test_those_who_are_there_make_a_sum_of_their_own_but_where_training_has_sums_in_its_middle(
    monkeypatch: pytest.MonkeyPatch, kind: TaskKind
) -> None:
    asked, forgotten = list[Ask](), list[ObjectRef]()

    async def answers(_step: MaskedStep, session: MaskedSession, ask: Ask) -> tuple[Ask, Gathered]:
        """Of the first session too few answer."""
        asked.append(ask)
        there = session.to if len(asked) > 1 else FEW
        made = tuple(Answer(participant=name, update=UPDATE) for name in there)
        return ask, Gathered(asked=session.to, answers=made)

    async def summed(_step: MaskedStep, _session: MaskedSession, _number: int, answers: tuple[Answer, ...]) -> Summed:
        return Summed(participants=tuple(answer.participant for answer in answers), tally=Tally(weight=1.0))

    def forget(refs: Iterable[ObjectRef]) -> None:
        forgotten.extend(refs)

    monkeypatch.setattr(MaskedStep, "answers", answers)
    monkeypatch.setattr(MaskedStep, "sum", summed)
    job = check_job({
        "rounds": 1, "model": {"name": "mlp", "batch_norm": True}, "evaluate": {"every": 1},
        "train": {"algorithm": {"name": "fedtan", "patience": 1}}, "participants": {"minimum": 8, "quorum": 0.1},
        "secure_aggregation": {"mode": "pairwise", "minimum": 3},
    })  # fmt: skip
    fields: dict[str, Any] = {"project": "p", "run": "a" * 12, "job": job, "binds": True, "of_first_release": False}
    run = cast("Verbs", SimpleNamespace(**fields, forget=forget, note=lambda *_, **__: None))
    ask = (training if kind is TaskKind.TRAIN else evaluation)(job, MANY, 1, ref_of_bytes(b"model"))
    _, made, _ = await summed_masked(run, Shared(run), "r1", "r1-sum", ask, RoundState())
    assert forgotten == [UPDATE] * len(FEW), "of a sum that is not made no update stays"
    in_the_middle = kind is TaskKind.TRAIN
    assert made.participants == (MANY if in_the_middle else FEW)
    assert [ask.patience for ask in asked] == [patience_of(job, 1) if in_the_middle else None] * 2
    assert patience_of(job, 1) is not None
