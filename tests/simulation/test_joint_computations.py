"""The workflow with a joint computation of docs/extending.md, from a package: through memory and a hub, with kills."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from clocks import in_virtual_time
from hanse.jobs import read_job
from hanse_coordinator.records import RunRecord
from hanse_datapod.data.load import read_site_tables
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Task
from hanse_fabric.virtual_time import VirtualClock
from hanse_schemas.job import Job
from hanse_workflows.memory import Made, conduct
from installed_package import install
from simulation.league import League
from simulation.stories import answers, ended, hub_of, outcomes_when_killed
from simulation.wards import SCHEMA, WARDS, Wards, ward_job

PAGE = (Path(__file__).parents[2] / "docs/extending.md").read_text()
(SOURCE,) = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "JointSums" in block]
RULES = {"workflows": ["head_count"]}


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {"hanse.workflows": {"head_count": "head_count:workflow"}}
    monkeypatch.syspath_prepend(install(tmp_path / "site", "head_count", {"head_count": SOURCE}, entries))


def job(mode: str | None) -> Job:
    return ward_job(mode, workflow="head_count")


def counted(job: Job, sites: Mapping[str, Any]) -> list[Any]:
    """The numbers of rows that a run in memory tells of."""
    news: list[Any] = []
    conduct(job, sites, schema=SCHEMA, told=lambda _kind, _round, data: news.append(data.get("rows")))
    return [rows for rows in news if rows is not None]


def test_the_workflow_of_the_page_has_some_thirty_lines() -> None:
    assert sum(bool(line.strip()) for line in SOURCE.splitlines()) <= 30


@pytest.mark.parametrize("mode", [None, "compensator", "pairwise"])
def test_a_package_counts_the_rows_of_all_in_memory_and_on_a_hub_whose_coordinator_dies(
    wards: Wards, tmp_path: Path, mode: str | None
) -> None:
    rows = sum(len(read_site_tables(wards.settings(name), SCHEMA).train.columns["age"]) for name in WARDS)
    assert counted(job(None if mode is None else "compensator"), wards.in_memory(tmp_path / "memory")) == [rows]

    def told(made: League, record: RunRecord) -> object:
        assert record.state == "completed"
        assert set(answers(made).values()) == {1}
        return {event.data["rows"] for event in made.events("note") if "rows" in event.data} == {rows}

    there: dict[str, Any] = {"worker": wards.worker, "schema": SCHEMA, "rules": RULES}
    killed = outcomes_when_killed(tmp_path, WARDS, read_job(job(mode)), every=17, told=told, known=True, **there)
    assert len(killed) > 1
    assert all(killed)


@in_virtual_time
async def test_a_site_whose_policy_does_not_name_the_workflow_ends_the_run_for_there_is_no_sum_of_some(
    clock: VirtualClock, wards: Wards, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, *WARDS, worker=wards.worker, schema=SCHEMA, rules={"workflows": []}) as made:
        record = await ended(made, read_job(job("compensator")))
    assert record.state == "failed"
    assert "the site's policy forbids it: workflows" in record.reason


class Failing:
    """A site that is away for its first tasks, and whose answers to the others cannot be read."""

    def __init__(self, away: int) -> None:
        self.steps: list[str] = []
        self._away = away

    def work(self, task: Task, objects: Mapping[str, bytes]) -> Made:
        self.steps.append(task.step)
        if len(self.steps) <= self._away:
            raise HanseError(ErrorCode.UNAVAILABLE, "the disk is away")
        return Made(b"no tensor file", examples=1)


@pytest.mark.parametrize(
    ("away", "steps"),
    [
        (0, ["prepare", "prepare-s2", "prepare-s3"]),
        (1, ["prepare", "prepare-a2", "prepare-s2"]),
        (2, ["prepare", "prepare-a2", "prepare-a3"]),
        (9, ["prepare", "prepare-a2", "prepare-a3"]),
    ],
)
def test_what_is_missing_and_what_is_refused_are_asked_again_by_one_count(
    wards: Wards, tmp_path: Path, away: int, steps: list[str]
) -> None:
    sites = wards.in_memory(tmp_path)
    failing = Failing(away)
    with pytest.raises(HanseError):
        conduct(ward_job(None), {**sites, "south": failing}, schema=SCHEMA)
    assert failing.steps == steps
