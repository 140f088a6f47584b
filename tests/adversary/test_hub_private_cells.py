"""A hub that asks a private task of cells that it has refused: whether the site can do it tells whether anybody has
one.

The preparation comes with the task, so a hub may write any values into it, and have all others refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adversary import workers
from adversary.conftest import Attacked
from adversary.lying_hub import LyingHub
from csv_tables import write_table
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.worker.work import preparing
from hanse_fabric.messages import Outcome, PrivacyTerms, TaskKind
from hanse_fabric.messages.privacy import Privacy, PrivateMetrics
from hanse_schemas.preparation import Preparation
from hanse_schemas.schema import Column, TabularSchema

SCHEMA = TabularSchema(
    features=(Column(name="age"), Column(name="status", kind="category", values=("negative", "positive"))),
    target="died", classes=2,
)  # fmt: skip
RULES = {
    "sites": 2, "masking": {"required": False}, "minimum_participants": 1, "schema": SCHEMA,
    "privacy": {"required": True, "epsilon": 100.0},
}  # fmt: skip
METRICS = PrivateMetrics(epsilon=0.01, bounds={"loss": 1.0})
ASKED = {
    "dp_sgd": TaskKind.TRAIN, "gaussian": TaskKind.TRAIN, "dp_sgd, evaluated": TaskKind.EVALUATE,
    "gaussian, evaluated": TaskKind.EVALUATE,
}  # fmt: skip
NOBODY_HAS = {
    "columns": [
        {"kind": "number", "name": "age"},
        {"kind": "category", "name": "status", "form": "ordinal", "values": ["negative"], "unknown": "refuse"},
    ]
}
MODEL = {"output.weight": np.zeros((2, 2)), "output.bias": np.zeros(2)}


def site_with_or_without(folder: Path) -> Any:
    """A worker on a table, by its number: in site 0 one patient is positive."""

    def worker(index: int) -> Any:
        rows = ((40 + at, "positive" if at == index == 0 else "negative", at % 2) for at in range(20))
        path = write_table(folder / f"{index}.csv", ["age", "status", "died"], rows)
        return workers.on(DataSettings(train=path, test=path))

    return worker


async def whoever_could(hub: LyingHub, asked: str) -> dict[str, bool]:
    """By site whether it did a private task in which the value of one patient is refused."""
    privacy = Privacy(
        placement="local", mechanism="dp_sgd" if "dp_sgd" in asked else "gaussian", noise_multiplier=100.0,
        metrics=METRICS if ASKED[asked] is TaskKind.EVALUATE else None,
    )  # fmt: skip
    config = {"model": {"name": "mlp", "hidden": []}, "train": {"steps": 1}, "preparation": NOBODY_HAS}
    results = await hub.ask(
        *(
            hub.task(
                name, kind=ASKED[asked], mode=None, model=MODEL, config=config,
                privacy=PrivacyTerms(privacy=privacy, rounds=1, round=1, active=2),
            )
            for name in hub.stage.names
        )
    )  # fmt: skip
    return {name: result.outcome is Outcome.DONE for name, result in results.items()}


@pytest.mark.parametrize("asked", ASKED)
async def test_whether_a_private_task_could_be_done_does_not_tell_who_has_which_value(
    attacked: Attacked, tmp_path: Path, asked: str
) -> None:
    async with attacked(worker=site_with_or_without(tmp_path), **RULES) as hub:
        assert await whoever_could(hub, asked) == {"site-0": True, "site-1": True}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.control("test_whether_a_private_task_could_be_done_does_not_tell_who_has_which_value")
async def test_control_where_cells_are_refused_one_private_task_tells_whether_anybody_has_a_value(
    attacked: Attacked, tmp_path: Path, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Preparation, "lenient", property(lambda given: given))
    monkeypatch.setattr(preparing, "_as_declared", lambda given, _: given)
    async with attacked(worker=site_with_or_without(tmp_path), **RULES) as hub:
        assert await whoever_could(hub, asked) == {"site-0": False, "site-1": True}
