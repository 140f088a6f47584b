"""An owner, or a hub, who asks of columns that a site's policy keeps back, and of a group of one person.

A study's table has the alleles of all cases. Where one person alone is a case, these are that person's genotypes; and
by a phenotype that the project has never declared, whoever the site knows it of is compared with all others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from adversary.in_memory import tmp_path
from adversary.test_owner_people import HETEROZYGOUS, MISSING, PERSON, TARGET, genotypes, phenotypes, studied
from clocks import in_virtual_time
from csv_tables import write_table
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.policy.limits import AskingPolicy
from hanse_datapod.worker.client.process_worker import ProcessWorker
from hanse_fabric.clock import Clock
from hanse_fabric.messages import Task, TaskKind
from hanse_fabric.subjects import TASK
from hanse_fabric.tensors.file import decode_tensors
from hanse_fabric.virtual_time import VirtualClock
from hanse_schemas.job import check_job
from hanse_schemas.preparation import Preparation, PreparedNumber
from hanse_schemas.prepare import completed_job
from hanse_schemas.schema import Column, DataSchema, GenotypesSchema, OpenSchema, TabularSchema
from simulation.cohorts import COHORTS, Files, study_job
from simulation.in_threads import ThreadedProcess
from simulation.league import League
from simulation.stories import ended, hub_of

__all__ = ["tmp_path"]
DECLARED = GenotypesSchema(kind="genotypes", phenotypes=("ILL",))
UNDECLARED = GenotypesSchema(kind="genotypes")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Of whom one person is a case by the column ILL, which stands beside the .fam file, as AGE does."""
    made = Files.written(tmp_path_factory.mktemp("cohorts"))
    for name, prefix in made.prefixes.items():
        people = [line.split() for line in Path(f"{prefix}.fam").read_text().splitlines()]
        rows = [f"{one[0]} {one[1]} {1 + (name == TARGET and at == PERSON)}" for at, one in enumerate(people)]
        phenotypes(prefix).write_text("\n".join(["FID IID ILL", *rows]) + "\n")
    return made


def cohorts(files: Files, schema: DataSchema) -> dict[str, Any]:
    """How the league of cautious cohorts is made."""

    def worker(clock: Clock, number: int) -> ProcessWorker:
        prefix = files.prefixes[COHORTS[number]]
        settings = DataSettings(
            train=prefix, kind="plink", phenotypes=phenotypes(prefix), covariates=files.covariates(COHORTS[number])
        )
        return ProcessWorker(settings, ThreadedProcess(clock, 0.1, studies=True))

    return {"worker": worker, "schema": schema, "rules": {"masking": {"required": True}}}


async def read_of(made: League) -> tuple[Any, str]:
    """The person's copies of each minor allele, as a study of the column tells them; or why there is none."""
    found, why = await studied(made, "run000000001", "ILL", mode="pairwise")
    if found is None:
        return None, why
    return found["counts"].reshape(-1, 2, 2)[:, 0, :], ""  # of cases: the minor allele and the other


def check_read(files: Files, copies: Any) -> None:
    """That these are the one case's genotypes."""
    true = genotypes(files)
    assert np.array_equal(copies.sum(axis=1), np.where(true == MISSING, 0, 2))
    assert np.array_equal(copies[:, 0] == 1, true == HETEROZYGOUS)


@in_virtual_time
async def test_a_study_of_one_case_is_not_made(clock: VirtualClock, tmp_path: Path, files: Files) -> None:
    with threadpool_limits(1):
        async with hub_of(clock, tmp_path, *COHORTS, **cohorts(files, DECLARED)) as made:
            read, why = await read_of(made)
            assert read is None
            assert f"{TARGET} refused (the site's policy forbids it: asking.group: a study of fewer cases" in why


@in_virtual_time
@pytest.mark.control("test_a_study_of_one_case_is_not_made")
async def test_control_where_groups_may_be_of_one_the_table_has_that_persons_genotypes(
    clock: VirtualClock, tmp_path: Path, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AskingPolicy, "check_group", lambda *_, **__: None)
    with threadpool_limits(1):
        async with hub_of(clock, tmp_path, *COHORTS, **cohorts(files, DECLARED)) as made:
            read, why = await read_of(made)
            assert read is not None, why
            check_read(files, read)


@pytest.mark.parametrize("schema", [UNDECLARED, OpenSchema()], ids=["none declared", "open"])
@in_virtual_time
async def test_a_phenotype_that_the_project_has_not_declared_is_not_studied(
    clock: VirtualClock, tmp_path: Path, files: Files, schema: DataSchema, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AskingPolicy, "check_group", lambda *_, **__: None)
    with threadpool_limits(1):
        async with hub_of(clock, tmp_path, *COHORTS, **cohorts(files, schema)) as made:
            read, why = await read_of(made)
            assert read is None
            assert "asking.phenotypes: ILL is asked, allowed: FAM" in why


@in_virtual_time
@pytest.mark.control("test_a_phenotype_that_the_project_has_not_declared_is_not_studied")
async def test_control_without_the_rule_on_phenotypes_the_hidden_one_is_studied(
    clock: VirtualClock, tmp_path: Path, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AskingPolicy, "check_group", lambda *_, **__: None)
    monkeypatch.setattr(AskingPolicy, "check_study", lambda *_, **__: None)
    with threadpool_limits(1):
        async with hub_of(clock, tmp_path, *COHORTS, **cohorts(files, UNDECLARED)) as made:
            read, why = await read_of(made)
            assert read is not None, why
            check_read(files, read)


async def mean_age(made: League) -> tuple[float | None, str]:
    """What the sites of a regression are told of the mean of a covariate; or why there is none."""
    record = await ended(made, study_job("pairwise", test="logistic", covariates=["AGE"]))
    if record.state != "completed":
        return None, record.reason
    moments = next(task for task in made.published(TASK, Task) if task.step == "moments")
    centre = (moments.extras or {})["centre"]
    data = centre.inline or made.store.get(str(centre.key), limit=1 << 20)
    return float(decode_tensors(data)[1]["means"][-1]), ""


@in_virtual_time
async def test_a_covariate_that_the_project_has_not_declared_is_not_asked_of(
    clock: VirtualClock, tmp_path: Path, files: Files
) -> None:
    with threadpool_limits(1):
        async with hub_of(clock, tmp_path, *COHORTS, **cohorts(files, UNDECLARED)) as made:
            mean, why = await mean_age(made)
            assert mean is None
            assert "asking.covariates: AGE is asked, allowed: none" in why


@in_virtual_time
@pytest.mark.control("test_a_covariate_that_the_project_has_not_declared_is_not_asked_of")
async def test_control_without_the_rule_on_covariates_their_mean_is_told(
    clock: VirtualClock, tmp_path: Path, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AskingPolicy, "check_study", lambda *_, **__: None)
    with threadpool_limits(1):
        async with hub_of(clock, tmp_path, *COHORTS, **cohorts(files, UNDECLARED)) as made:
            mean, why = await mean_age(made)
            assert mean is not None, why
            ages = [row.split()[2] for name in COHORTS for row in files.covariates(name).read_text().splitlines()[1:]]
            assert mean == pytest.approx(np.mean([float(age) for age in ages if age != "NA"]))


TABLE = TabularSchema(
    features=(Column(name="age"), Column(name="hiv", kind="boolean")), target="died", classes=2
)  # fmt: skip
WARDS = ("east", "north", "south")


def written(folder: Path) -> dict[str, Path]:
    files = {}
    for number, name in enumerate(WARDS):
        rows = ([40 + at, int(at % 7 == number), at % 2] for at in range(28))
        files[name] = write_table(folder / f"{name}.csv", ["age", "hiv", "died"], rows)
    return files


async def share_with_hiv(clock: VirtualClock, folder: Path) -> tuple[float | None, str]:
    """What a job's preparation tells of a column that the sites' policies do not name."""
    files = written(folder)

    def worker(clock: Clock, number: int) -> ProcessWorker:
        settings = DataSettings(train=files[WARDS[number]], test_fraction=0.0)
        return ProcessWorker(settings, ThreadedProcess(clock, 0.1))

    body = {
        "rounds": 2, "model": {"name": "logistic"}, "train": {"steps": 1}, "evaluate": {"every": 0},
        "participants": {"minimum": 3, "deadline": 30.0, "patience": 30.0},
        "secure_aggregation": {"mode": "compensator"},
    }  # fmt: skip
    job = completed_job(check_job(body), TABLE).model_dump(mode="json", exclude_defaults=True)
    there = {"worker": worker, "schema": TABLE, "rules": {"asking": {"columns": ["age", "died"]}}}
    with threadpool_limits(1):
        async with hub_of(clock, folder / "hub", *WARDS, **there) as made:
            record = await ended(made, job)
            if record.state != "completed":
                return None, record.reason
            tasks = [task for task in made.published(TASK, Task) if task.kind is TaskKind.TRAIN]
    hiv = Preparation.model_validate(tasks[0].config["preparation"]).columns[1]
    assert isinstance(hiv, PreparedNumber)
    return hiv.fill, ""


@in_virtual_time
async def test_a_column_that_the_policy_does_not_name_is_not_asked_of(clock: VirtualClock, tmp_path: Path) -> None:
    share, why = await share_with_hiv(clock, tmp_path)
    assert share is None
    assert "asking.columns: hiv is asked, allowed: age, died" in why


@in_virtual_time
@pytest.mark.control("test_a_column_that_the_policy_does_not_name_is_not_asked_of")
async def test_control_without_the_rule_on_columns_its_share_of_all_people_is_told(
    clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AskingPolicy, "check_schema", lambda *_: None)
    share, why = await share_with_hiv(clock, tmp_path)
    assert share == 12 / 84, why
