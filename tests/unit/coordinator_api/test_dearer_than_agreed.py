"""A run that sites' ledgers will refuse in its middle, by the project's terms, is refused or warned of before."""

from __future__ import annotations

from typing import Any

from hanse_coordinator.api.submission import dearer_at_some, dearer_than_agreed
from hanse_schemas.job import Job, check_job
from hanse_schemas.schema import OpenSchema
from hanse_schemas.terms import AskedTerms, ProjectTerms

METRICS = {"epsilon": 0.01, "bounds": {"loss": 4.0}}


def job(mechanism: str, **more: Any) -> Job:
    section = {"placement": "local", "mechanism": mechanism, "epsilon": 2.0} | more
    return check_job({"rounds": 10, "model": {"name": "logistic"}, "participants": {"minimum": 4}, "privacy": section})


def agreed(epsilon: float | None) -> ProjectTerms:
    asked = AskedTerms(owner="Clinic", purpose="triage", epsilon=epsilon)
    return ProjectTerms(project="triage", version=1, asked=asked, data_schema=OpenSchema())


def test_a_run_that_every_ledger_charges_more_for_than_was_agreed_to_is_refused() -> None:
    wanted = job("gaussian", metrics=METRICS)
    assert agreed(2.2).broken_by(wanted) == []  # the sum of what its noise was made for
    [said] = dearer_than_agreed(wanted, agreed(2.2))
    assert said.startswith("privacy.epsilon: sites' ledgers charge ")
    assert dearer_than_agreed(wanted, agreed(4.0)) == dearer_than_agreed(wanted, agreed(None)) == []
    assert dearer_than_agreed(job("gaussian"), agreed(2.0)) == []
    assert dearer_than_agreed(job("laplace", metrics=METRICS), agreed(2.2)) == []


def test_where_it_depends_on_each_sites_examples_the_owner_is_warned() -> None:
    wanted = job("dp_sgd", metrics=METRICS)
    assert dearer_than_agreed(wanted, agreed(2.2)) == []
    assert "ask before" in dearer_at_some(wanted, agreed(2.2))[0]
    assert dearer_at_some(wanted, agreed(None)) == dearer_at_some(wanted, None) == ()
    assert dearer_at_some(job("dp_sgd"), agreed(2.2)) == ()
    assert dearer_at_some(job("gaussian", metrics=METRICS), agreed(4.0)) == ()
