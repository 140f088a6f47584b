"""A hub that has a work summed again after a site has removed one patient, of whom the table had many rows.

A schema's `unit` says whose each row is. Were every row a person, one who came a dozen times would be a dozen, and as
many changes are let pass: the difference of the two sums is what all that is known of this one patient makes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from adversary import workers
from adversary.conftest import Attacked
from adversary.lying_hub import LyingHub
from adversary.works import summed
from csv_tables import write_table
from hanse_datapod.data import tables
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.worker.server import training
from hanse_fabric.messages import HiddenFailure
from hanse_schemas.schema import Column, TabularSchema

SCHEMA = TabularSchema(features=(Column(name="age"),), target="stay", task="regression", unit="patient")
SITES, PATIENTS, VISITS, RATE = 4, 15, 12, 0.1
FREQUENT = (61.0, 9.0)
"""Age and stay of the one patient who came so often, at the first site."""
MODEL = {"output.weight": np.array([[0.0]]), "output.bias": np.array([0.0])}
TRAIN = {"steps": 1, "batch_size": 1000, "optimizer": {"name": "sgd", "lr": RATE}}
CONFIG = {"model": {"name": "linear"}, "train": TRAIN}
Rows = list[tuple[str, float, float]]


def rows_of(site: int, *, frequent: bool) -> Rows:
    rows = [(f"p{at // 2}", 40.0 + at / 8 + site, 2.0 + at % 5) for at in range(2 * PATIENTS)]
    return rows + [("often", *FREQUENT)] * (VISITS if frequent and not site else 0)


def write(folder: Path, site: int, *, frequent: bool) -> Path:
    return write_table(folder / f"{site}.csv", ["patient", "age", "stay"], rows_of(site, frequent=frequent))


def update(rows: Rows) -> NDArray[np.float64]:
    """(weight, bias) of one step from zero, over all rows."""
    x = np.array([[age, 1.0] for _, age, _ in rows])
    return 2 * RATE * x.T @ np.array([stay for *_, stay in rows]) / len(rows)


async def of_the_one_patient(hub: LyingHub, folder: Path) -> tuple[Any, str]:
    """What two sums of all sites differ by, before and after the patient is gone; or why there is no second one."""
    plan = hub.plan(bits=64, bound=4096.0)
    how: dict[str, Any] = {"model": MODEL, "config": CONFIG, "plan": plan}
    whole, why = await summed(hub, hub.stage.names, "s1", **how)
    assert whole is not None, why
    write(folder, 0, frequent=False)
    rest, why = await summed(hub, hub.stage.names, "s2", **how)
    return (None, why) if rest is None else (whole - rest, "")


def staged(attacked: Attacked, folder: Path) -> Any:
    def worker(index: int) -> Any:
        return workers.on(DataSettings(train=write(folder, index, frequent=True), test_fraction=0))

    return attacked(sites=SITES, worker=worker, schema=SCHEMA)


async def test_a_work_is_not_done_again_without_one_patient_of_many_rows(attacked: Attacked, tmp_path: Path) -> None:
    async with staged(attacked, tmp_path) as hub:
        read, why = await of_the_one_patient(hub, tmp_path)
        assert read is None
        assert HiddenFailure.UNFIT.text in why


@pytest.mark.control("test_a_work_is_not_done_again_without_one_patient_of_many_rows")
async def test_control_where_every_row_is_a_person_the_difference_is_one_patients(
    attacked: Attacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (tables, training):
        monkeypatch.setattr(module, "people_of", lambda rows, _whose: rows)
    async with staged(attacked, tmp_path) as hub:
        read, why = await of_the_one_patient(hub, tmp_path)
        assert read is not None, why
        expected = update(rows_of(0, frequent=True)) - update(rows_of(0, frequent=False))
        assert np.abs(np.sort(read) - np.sort(expected)).max() < 1e-3
