"""Cohorts of a small simulated study: their files, a worker on each in a thread, and a site in memory on each."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hanse_datapod.data.settings import DataSettings
from hanse_datapod.worker.client.process_worker import ProcessWorker
from hanse_fabric.clock import Clock
from hanse_fabric.messages import Task
from hanse_fabric.tensors.file import decode_tensors, encode_tensors, layout_like
from hanse_genomics.files.cohort import Cohort, open_cohort
from hanse_genomics.simulation import CohortPlan, Covariate, StudyPlan, simulate
from hanse_genomics.site import STEPS, SiteStudy
from hanse_schemas.schema import GenotypesSchema
from hanse_schemas.study import Study
from hanse_workflows.memory import Made
from simulation.in_threads import ThreadedProcess

COHORTS = ("east", "north", "south")
SCHEMA = GenotypesSchema(kind="genotypes", covariates=("AGE",))
PLAN = StudyPlan(
    snps=300,
    cohorts=tuple(CohortPlan(name, 40 + 5 * at, 50 - 5 * at) for at, name in enumerate(COHORTS)),
    seed=11,
    missing=0.02,
    covariates=(Covariate("AGE", 60, 10, log_odds=0.3),),
)
SECTION: dict[str, Any] = {"test": "logistic", "covariates": ["AGE"], "chunk": 256, "in_flight": 3}


def study_job(mode: str = "compensator", **section: Any) -> dict[str, Any]:
    return {
        "workflow": "association_study", "study": SECTION | section, "secure_aggregation": {"mode": mode},
        "participants": {"minimum": 3, "deadline": 30.0, "patience": 30.0},
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Files:
    """Where the cohorts' files are."""

    prefixes: Mapping[str, Path]

    @classmethod
    def written(cls, folder: Path, plan: StudyPlan = PLAN) -> Files:
        return cls(dict(simulate(plan, folder, pooled_files=False).cohorts))

    def covariates(self, name: str) -> Path:
        return self.prefixes[name].with_name(self.prefixes[name].name + ".cov")

    def worker(self, clock: Clock, number: int) -> ProcessWorker:
        """For the league: the worker of a cohort, by its place in the plan."""
        name = tuple(self.prefixes)[number]
        settings = DataSettings(train=self.prefixes[name], kind="plink", covariates=self.covariates(name))
        return ProcessWorker(settings, ThreadedProcess(clock, 0.1, studies=True))

    def cohort(self, name: str, study: Study) -> Cohort:
        return open_cohort(self.prefixes[name], study, None, self.covariates(name))


class CohortInMemory:
    """A `MemorySite`."""

    def __init__(self, files: Files, name: str) -> None:
        self._files, self._name, self._state = files, name, tempfile.TemporaryDirectory()
        self._study: SiteStudy | None = None

    def work(self, task: Task, objects: Mapping[str, bytes]) -> Made:
        if self._study is None:
            study = Study.model_validate(task.config["study"])
            self._study = SiteStudy(self._files.cohort(self._name, study), study, Path(self._state.name))
        given = {name: decode_tensors(data)[1] for name, data in objects.items()}
        made = STEPS[task.config["step"]](self._study, task.config.get("settings") or {}, given)
        arrays = {name: np.ascontiguousarray(array) for name, array in made.items()}
        return Made(encode_tensors(layout_like(arrays), arrays))
