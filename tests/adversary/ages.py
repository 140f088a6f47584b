"""Tables of ages, of whom every second has died: of four sites, unless an attack has others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from adversary import workers
from csv_tables import write_table
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.worker.client.process_worker import ProcessWorker
from hanse_schemas.schema import Column, TabularSchema

SCHEMA = TabularSchema(features=(Column(name="age"),), target="died", classes=2)
ROWS = (12, 14, 15, 23)
TARGET = f"site-{len(ROWS) - 1}"
"""The largest."""
AGES = [[20.0 + 1.5 * at + 0.25 * site for at in range(rows)] for site, rows in enumerate(ROWS)]


def write_ages(path: Path, ages: Sequence[float], first: int = 0) -> Path:
    """The table of these people, of whom one is the `first` of those that there were."""
    return write_table(path, ["age", "died"], ((age, at % 2) for at, age in enumerate(ages, first)))


def on_ages(folder: Path, ages: Sequence[Sequence[float]] = AGES) -> Callable[[int], ProcessWorker]:
    """Makes a site's worker by its number: its table is for training and test."""

    def worker(index: int) -> ProcessWorker:
        path = write_ages(folder / f"{index}.csv", ages[index])
        return workers.on(DataSettings(train=path, test=path))

    return worker
