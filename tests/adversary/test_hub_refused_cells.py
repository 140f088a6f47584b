"""A hub that sends a preparation by which a value is refused that somebody may have: whether a site can do the task is
one exact bit of that site alone, asked as often as the hub likes.

Under masks it is one of the fixed codes that tells it. A run's first model is made of the job's seed, under no mask,
and charged to nobody; but where the schema does not say how many classes there are, a site looks at its table for it,
and the message had the row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import LyingHub
from adversary.test_hub_private_cells import MODEL, NOBODY_HAS, SCHEMA, site_with_or_without
from hanse_datapod.worker.work import preparing
from hanse_fabric.messages import Outcome, Result, TaskKind
from hanse_schemas.preparation import Preparation

GIVEN = Preparation.model_validate(NOBODY_HAS).model_dump(mode="json")
UNSAID = SCHEMA.model_copy(update={"classes": None})
CAUTIOUS: dict[str, dict[str, Any]] = {
    "masking": {},
    "privacy": {"masking": {"required": False}, "privacy": {"required": True, "epsilon": 1.0}},
}


async def first_models(hub: LyingHub) -> dict[str, Result]:
    """Of a site of which one patient is positive, and of one where none is."""
    config = {"model": {"name": "logistic"}, "preparation": GIVEN}
    return await hub.ask(
        *(
            hub.task(name, "init", kind=TaskKind.INITIALIZE, mode=None, round=0, config=config)
            for name in hub.stage.names
        )
    )


def tells_who_is_positive(answers: dict[str, Result]) -> bool:
    # Not by the model's bits: torch's seed is the process's, and both sites are in this one.
    said = [(each.outcome, each.reason, each.update and each.update.size) for _, each in sorted(answers.items())]
    return said[0] != said[1]


@pytest.mark.parametrize("why", sorted(CAUTIOUS))
async def test_a_first_model_does_not_tell_who_has_which_value(attacked: Attacked, tmp_path: Path, why: str) -> None:
    worker = site_with_or_without(tmp_path)
    async with attacked(sites=2, worker=worker, schema=UNSAID, **CAUTIOUS[why]) as hub:
        answers = await first_models(hub)
        assert {answer.outcome for answer in answers.values()} == {Outcome.DONE}
        assert not tells_who_is_positive(answers)


@pytest.mark.control("test_a_first_model_does_not_tell_who_has_which_value")
async def test_control_where_a_first_models_preparation_refuses_cells_the_patients_row_is_told(
    attacked: Attacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Preparation, "lenient", property(lambda self: self))
    monkeypatch.setattr(preparing, "_as_declared", lambda given, _: given)
    async with attacked(sites=2, worker=site_with_or_without(tmp_path), schema=UNSAID, **CAUTIOUS["masking"]) as hub:
        answers = await first_models(hub)
        assert tells_who_is_positive(answers)
        assert "status" in answers["site-0"].reason


async def who_could(hub: LyingHub, kind: TaskKind) -> dict[str, Outcome]:
    """How a masked task ended at each site, by which the value of one patient is refused."""
    config = {"model": {"name": "mlp", "hidden": []}, "train": {"steps": 1}, "preparation": GIVEN}
    tasks = [hub.task(name, "r1", kind=kind, model=MODEL, config=config) for name in hub.stage.names]
    return {name: result.outcome for name, result in (await hub.ask(*tasks)).items()}


@pytest.mark.parametrize("kind", [TaskKind.TRAIN, TaskKind.EVALUATE])
async def test_whether_a_masked_task_could_be_done_does_not_tell_who_has_which_value(
    attacked: Attacked, tmp_path: Path, kind: TaskKind
) -> None:
    async with attacked(sites=3, worker=site_with_or_without(tmp_path), schema=SCHEMA) as hub:
        assert set((await who_could(hub, kind)).values()) == {Outcome.DONE}


@pytest.mark.control("test_whether_a_masked_task_could_be_done_does_not_tell_who_has_which_value")
async def test_control_where_any_value_may_be_refused_one_masked_task_tells_whether_anybody_has_it(
    attacked: Attacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "_as_declared", lambda given, _: given)
    async with attacked(sites=3, worker=site_with_or_without(tmp_path), schema=SCHEMA) as hub:
        told = await who_could(hub, TaskKind.TRAIN)
        assert told == {"site-0": Outcome.REFUSED, "site-1": Outcome.DONE, "site-2": Outcome.DONE}
