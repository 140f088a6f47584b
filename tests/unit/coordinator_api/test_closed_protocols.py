"""Before a run, its owner is told which protocols of fine questions the sites' policies have closed, and what a job may
ask instead."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hanse_coordinator.api.submission import closed_protocols
from hanse_fabric.messages import BudgetTold, Presence
from hanse_fabric.messages.participants import ParticipantRecord
from hanse_fabric.subjects import PRESENCE
from hanse_schemas.job import check_job
from hanse_schemas.prepare import completed_job
from hanse_schemas.schema import Column, TabularSchema
from hub_api import Api

SCHEMA = TabularSchema(
    features=(Column(name="age"), Column(name="ward", kind="category", values=("burns", "general"))), target="died",
    classes=2,
)  # fmt: skip
JOB: dict[str, Any] = {"rounds": 1, "model": {"name": "logistic"}}
RARE = {"prepare": {"categories": {"rare": 5}}}
COARSE, ALL = ("moments",), ("moments", "category_counts")


def told(job: dict[str, Any], sites: dict[str, tuple[str, ...] | None]) -> tuple[str, ...]:
    return closed_protocols(completed_job(check_job(JOB | job), SCHEMA), sites)


def test_a_protocol_is_told_to_be_closed_with_the_sites_and_what_needs_it_not() -> None:
    [warning] = told(RARE, {"south": COARSE, "north": COARSE, "east": ALL, "older": None})
    assert warning.startswith("asking.protocols: category_counts (rows of each value that the schema names) is closed")
    assert "by the policy of north, south, where" in warning
    assert "rare: 0" in warning
    assert len(told(RARE, {"north": ()})) == 2


@pytest.mark.parametrize("job", [{}, RARE])
def test_nothing_is_told_where_all_that_is_needed_is_open_or_sites_do_not_say(job: dict[str, Any]) -> None:
    assert told(job, {"north": ALL, "south": None}) == ()


def test_a_job_that_asks_for_nothing_closed_is_told_nothing() -> None:
    assert told({}, {"north": COARSE}) == ()
    numbers = {"scale": "none", "missing": "constant", "indicator": False}
    assert told({"prepare": {"numbers": numbers, "categories": {"missing": "own"}}}, {"north": ()}) == ()


def test_of_many_sites_some_are_named() -> None:
    [warning] = told(RARE, {f"site-{number:03}": COARSE for number in range(300)})
    assert "site-009 and 290 more" in warning


async def test_a_check_tells_what_the_sites_have_said(api: Api, owner: str) -> None:
    schema = SCHEMA.model_dump(mode="json", exclude_defaults=True) | {"kind": "tabular"}
    await api.ok("POST", "/v1/projects", owner, {"name": "wards", "schema": schema})
    for name in ("north", "gone"):
        record = ParticipantRecord(
            project="wards", participant=name, public_key=b"AAAA", bus_key="U", enrolled_at=api.clock.now(),
            revoked=name == "gone",
        )  # fmt: skip
        await api.hub.buckets.participants.create(record, project="wards", participant=name)
        life = Presence(
            project="wards", participant=name, version="1", sent_at=api.clock.now(), protocols=COARSE,
            rules=("masked sums are of 3 sites",), budget=BudgetTold(spent=1.5, delta=1e-5), paused=True,
        )  # fmt: skip
        await api.hub.bus.publish(PRESENCE.of(project="wards", participant=name), life.encode())
        async with asyncio.timeout(60):
            while api.hub.presence.of("wards", name) is None:  # noqa: ASYNC110 - the watch tells nobody
                await asyncio.sleep(0)
    seen = await api.ok("GET", "/v1/projects/wards/participants/north", owner)
    assert (seen["rules"], seen["budget"], seen["paused"]) == (
        ["masked sums are of 3 sites"], {"spent": 1.5, "delta": 1e-05, "allowed": None}, True,
    )  # fmt: skip
    checked = await api.ok("POST", "/v1/projects/wards/check", owner, {"job": JOB | RARE})
    [warning] = [one for one in checked["warnings"] if one.startswith("asking.protocols")]
    assert [one for one in checked["warnings"] if one.startswith("evaluate.metrics: auroc") and "north" in one]
    assert "by the policy of north, where" in warning


async def test_a_preparation_of_sites_of_the_first_release_is_refused_at_once(api: Api, owner: str) -> None:
    schema = {"kind": "tabular", "features": [{"name": "age", "minimum": 0, "maximum": 120}], "target": "died"}
    await api.ok("POST", "/v1/projects", owner, {"name": "wards", "schema": schema})
    record = ParticipantRecord(
        project="wards", participant="north", public_key=b"AAAA", bus_key="U", enrolled_at=api.clock.now()
    )
    await api.hub.buckets.participants.create(record, project="wards", participant="north")
    life = Presence(project="wards", participant="north", version="0.1.0", sent_at=api.clock.now())
    await api.hub.bus.publish(PRESENCE.of(project="wards", participant="north"), life.encode())
    async with asyncio.timeout(60):
        while api.hub.presence.of("wards", "north") is None:  # noqa: ASYNC110 - the watch tells nobody
            await asyncio.sleep(0)
    refusal = await api.refused("POST", "/v1/projects/wards/check", owner, {"job": JOB})
    assert "prepare: north: the datapod is of release 0.1.0, which prepares no columns" in str(refusal)
    for prepare in ("none", {"numbers": {"scale": "minmax", "missing": "constant", "indicator": False}}):
        await api.ok("POST", "/v1/projects/wards/check", owner, {"job": JOB | {"prepare": prepare}})
