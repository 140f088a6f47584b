"""Three hospitals with raw tables: missing cells, categories that one of them alone has, a column that one has no cell
of."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from csv_tables import write_table
from hanse_datapod.data.load import SiteData, read_site_tables
from hanse_datapod.data.settings import DataSettings, Split, TableOptions
from hanse_datapod.rehearsal.site import RehearsedSite
from hanse_datapod.worker.client.process_worker import ProcessWorker
from hanse_fabric.clock import Clock
from hanse_schemas.job import Job, check_job
from hanse_schemas.prepare import completed_job
from hanse_schemas.schema import Column, TabularSchema
from simulation.in_threads import ThreadedProcess

PLAIN = TableOptions()
WARDS = ("east", "north", "south")
SCHEMA = TabularSchema(
    features=(
        Column(name="age", minimum=0, maximum=120, bands=(55, 65)),
        Column(name="creatinine", unit="umol/l"),
        Column(name="lactate"),
        Column(name="ward", kind="category", values=("burns", "general", "stroke")),
        Column(name="smoker", kind="boolean"),
        Column(name="note", kind="text"),
    ),
    target="died", classes=2,
)  # fmt: skip


def ward_job(mode: str | None = "compensator", **changes: Any) -> Job:
    """As a hub submits it: of one round, where a test does not ask for more."""
    body: dict[str, Any] = {
        "rounds": 1, "model": {"name": "logistic"}, "train": {"epochs": 4, "batch_size": 16}, "checkpoint_every": 0,
        "participants": {"minimum": 3, "deadline": 30.0, "patience": 30.0}, "seed": 3,
    }  # fmt: skip
    sums = {} if mode is None else {"secure_aggregation": {"mode": mode}}
    return completed_job(check_job(body | sums | changes), SCHEMA)


@dataclass(frozen=True, slots=True)
class Wards:
    """Their files, by name."""

    files: dict[str, Path]
    table: TableOptions = PLAIN
    schema: TabularSchema = SCHEMA

    @classmethod
    def written(cls, folder: Path, bad: int = 0, options: TableOptions = PLAIN) -> Wards:
        """Each file has so many ages that are none."""
        files = {}
        for number, name in enumerate(WARDS):
            columns = [*(column.name for column in SCHEMA.features), SCHEMA.target]
            rows = [["old", *row[1:]] if at < bad else row for at, row in enumerate(_rows(number))]
            files[name] = write_table(folder / f"{name}.csv", columns, rows)
        return cls(files, options)

    def settings(self, name: str) -> DataSettings:
        return DataSettings(train=self.files[name], table=self.table)

    def worker(self, clock: Clock, number: int) -> ProcessWorker:
        """For the league: the worker of a ward, by its place."""
        return ProcessWorker(self.settings(WARDS[number]), ThreadedProcess(clock, 0.1))

    def in_memory(self, folder: Path, split: Split = "shuffled") -> dict[str, RehearsedSite]:
        """Sites of a run in memory, of a job that has test data set aside so."""
        sites = {}
        for name in WARDS:
            tables = read_site_tables(self.settings(name).model_copy(update={"split": split}), self.schema)
            test = None if tables.test is None else tables.test.examples
            (folder / name).mkdir(parents=True)
            sites[name] = RehearsedSite(folder / name, SiteData(tables.train.examples, test), self.schema, None, tables)
        return sites


def _rows(number: int) -> list[list[object]]:
    draw = random.Random(number)
    rows: list[list[object]] = []
    for at in range(60 + 17 * number):
        age, creatinine = round(draw.gauss(60, 15), 1), round(draw.lognormvariate(4.4, 0.4), 2)
        died = int(draw.gauss(0, 20) + age + creatinine / 4 > 82)
        lactate: object = "" if number == 1 or at % 9 == 0 else round(draw.gauss(2 + died, 0.5), 2)
        ward = draw.choice(("burns", "general") if number == 2 else ("general", "stroke"))
        rows.append([
            min(max(age, 0), 120), creatinine, lactate, "" if at % 13 == 0 else ward,
            draw.choice(("yes", "no")), f"seen by Dr {number}", died,
        ])  # fmt: skip
    return rows
