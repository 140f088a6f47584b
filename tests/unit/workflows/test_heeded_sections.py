"""No workflow passes over a section of a job in silence: it reads it while it conducts the run, or refuses it."""

from __future__ import annotations

from typing import Any

import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.plugins import WORKFLOWS, built_in
from hanse_schemas.job import _OF_TRAINING, Job, Participation
from hanse_workflows import Verbs, Workflow
from hanse_workflows.memory import conduct
from hanse_workflows.workflow import workflow_of
from unit.workflows.memory_sites import job_of, sites

OF_PEOPLE = {"name", "tags"}
"""By which an owner finds the run."""
OF_ADAPTERS = {"participants.patience"}
"""In memory, nobody waits for sites."""
REFUSED: dict[str, dict[str, Any]] = {
    "federated_averaging": {"study": {"phenotype": "height"}},
    "cyclic_weight_transfer": {"study": {"phenotype": "height"}, "utility_preserving": True},
}
BEFORE: dict[str, set[str]] = {"federated_averaging": {"utility_preserving"}, "cyclic_weight_transfer": set()}
"""What a job is held to when it is submitted, and never after."""
OF_STUDIES = {"workflow", "participants", "seed", "secure_aggregation", "privacy", "study"} | OF_PEOPLE


def test_every_registered_workflow_is_looked_at() -> None:
    assert {plugin.name for plugin in built_in(WORKFLOWS)} == {*REFUSED, "association_study"}


@pytest.mark.parametrize("name", REFUSED)
def test_a_section_is_read_or_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read, job = set[str](), job_of(workflow=name, stop={"metric": "loss", "patience": 9})
    loaded = workflow_of(job)
    assert isinstance(loaded, Workflow)

    async def watched(run: Verbs) -> None:
        run.job = run.job.model_copy()  # of which nothing is remembered
        for kind in (Job, Participation):
            monkeypatch.setattr(kind, "__getattribute__", reading, raising=False)
        await loaded.conduct(run)

    def reading(self: object, field: str) -> Any:
        read.add(field if type(self) is Job else f"participants.{field}")
        return object.__getattribute__(self, field)

    conduct(job, sites(), workflow=Workflow(watched))
    monkeypatch.undo()
    fields = {*Job.model_fields, *(f"participants.{field}" for field in Participation.model_fields)}
    assert fields - read - OF_PEOPLE - OF_ADAPTERS - BEFORE[name] - {*REFUSED[name]} == set()


@pytest.mark.parametrize(("name", "field"), [(name, field) for name, fields in REFUSED.items() for field in fields])
def test_what_is_not_read_is_refused_by_its_name(name: str, field: str) -> None:
    with pytest.raises(HanseError, match=field) as raised:
        workflow_of(job_of(workflow=name, **{field: REFUSED[name][field]}))
    assert raised.value.code is ErrorCode.INVALID_INPUT


def test_a_study_refuses_every_section_that_is_not_its_own() -> None:
    assert {*Job.model_fields} == {*_OF_TRAINING} | OF_STUDIES
