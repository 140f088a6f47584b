"""A long run of many sites in one small page: no peak is lost, every point has been, and lists come in pages."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanse_coordinator.thinning import kept, spans, spread
from hanse_fabric.messages import RunEvent
from hanse_fabric.subjects import EVENT
from hub_api import JOB

ROUNDS, SITES = 1000, 100
PEAK, DIP = 617, 333
VALUES = st.lists(st.none() | st.floats(-1e6, 1e6), max_size=400)


@given(VALUES, st.integers(4, 60))
def test_what_is_kept_is_little_and_has_the_ends_and_the_extremes(values: list[float | None], points: int) -> None:
    at = kept(values, points)
    assert at == sorted(set(at))
    assert len(at) <= points
    if values:
        assert at[0] == 0
        assert at[-1] == len(values) - 1
    told = [value for value in values if value is not None]
    if told:
        assert min(told) in [values[index] for index in at]
        assert max(told) in [values[index] for index in at]


def test_spans_are_over_all_rounds_between_the_kept_ones() -> None:
    rounds = [{"a": {"loss": 1.0}, "b": {"loss": 3.0}}, {"a": {"loss": 9.0}, "b": {"loss": True}}, {"a": {}, "b": None}]
    told = [spread(each).get("loss") for each in (*rounds, {"a": {"loss": 2}, "b": {"loss": 4.0}})]
    assert spans(told, [0, 2, 3]) == ([1.0, 9.0, 2.0], [3.0, 9.0, 4.0])
    assert spans(told, [0, 1, 2])[0][2] is None


async def long_run(api: Any, owner: str, rounds: range) -> str:
    """A run whose events are those of so many rounds of a hundred sites."""
    run = str((await api.ok("POST", "/v1/projects/alpha/runs", owner, {"job": JOB}))["run"])
    await finish(api, run, rounds)
    return run


async def finish(api: Any, run: str, rounds: range) -> None:
    for number in rounds:
        loss = 5.0 if number == PEAK else 0.001 if number == DIP else 2 / math.sqrt(number)
        sites = {f"site-{index:03d}": {"loss": loss + index / 1000, "accuracy": 0.5} for index in range(SITES)}
        data = {"metrics": {"loss": loss, "accuracy": 1 - loss / 10, "note": "no number"}, "sites": sites}
        event = RunEvent(
            project="alpha", run=run, kind="round-finished", at=api.clock.now() + timedelta(seconds=number),
            round=number, data=data,
        )  # fmt: skip
        await api.hub.bus.publish(EVENT.of(project="alpha", run=run), event.encode())


async def test_a_thousand_rounds_of_a_hundred_sites_fit_in_one_page(
    api: Any, owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await long_run(api, owner, range(1, ROUNDS))
    curves = f"/v1/projects/alpha/runs/{run}/curves"
    page = await api.ok("GET", f"{curves}?metric=loss&points=300", owner)
    await finish(api, run, range(ROUNDS, ROUNDS + 1))
    snapshots: list[object] = []
    monkeypatch.setattr(api.hub.bus, "snapshot", lambda *given: snapshots.append(given))
    page = await api.ok("GET", f"{curves}?metric=loss&points=300", owner)
    assert not snapshots, "what was read once is not read again"
    assert (page["finished"], page["metrics"]) == (ROUNDS, ["accuracy", "loss"])
    assert len(page["rounds"]) <= 300
    assert {1, DIP, PEAK, ROUNDS} <= set(page["rounds"])
    assert page["overall"][page["rounds"].index(PEAK)] == 5.0
    assert page["high"][page["rounds"].index(PEAK)] == pytest.approx(5.099)
    assert len(page["sites"]) == SITES
    assert {len(column) for column in (*page["sites"].values(), page["low"])} == {len(page["rounds"])}
    assert len(json.dumps(page)) < 500 << 10
    small = await api.ok("GET", f"{curves}?sites=false&points=50", owner)
    assert (small["metric"], small["sites"], len(small["rounds"]) <= 50) == ("accuracy", {}, True)
    one = await api.ok("GET", f"{curves}?metric=loss&points=300&site=site-007", owner)
    assert one == page | {"sites": {"site-007": page["sites"]["site-007"]}}
    assert (await api.ok("GET", f"{curves}?site=nobody", owner))["sites"] == {}
    _, code, message = await api.refused("GET", f"{curves}?metric=none", owner)
    assert (code, "no round has 'none'" in message) == ("not-found", True)


async def test_the_newest_evaluation_is_told_with_its_curves_and_without_sites(api: Any, owner: str) -> None:
    run = await long_run(api, owner, range(1, 3))
    path = f"/v1/projects/alpha/runs/{run}/evaluation"
    assert await api.ok("GET", path, owner) == {"newest": None}
    for number, curves in ((3, {"roc": {}}), (4, {"calibration": []}), (5, {})):
        event = RunEvent(
            project="alpha", run=run, kind="round-finished", at=api.clock.now(), round=number,
            data={"metrics": {"loss": 1.0}, "sites": {"a": {"loss": 1.0}}, "curves": curves},
        )  # fmt: skip
        await api.hub.bus.publish(EVENT.of(project="alpha", run=run), event.encode())
    newest = (await api.ok("GET", path, owner))["newest"]
    assert (newest["round"], newest["curves"], newest["sites"]) == (4, {"calibration": []}, {})


async def test_metrics_and_events_are_read_in_parts_and_without_what_each_site_told(api: Any, owner: str) -> None:
    run = await long_run(api, owner, range(1, 6))
    metrics = f"/v1/projects/alpha/runs/{run}/metrics"
    part = await api.ok("GET", f"{metrics}?after=2&limit=2&sites=false", owner)
    assert [(each["round"], each["sites"]) for each in part["rounds"]] == [(3, {}), (4, {})]
    assert len((await api.ok("GET", metrics, owner))["rounds"][0]["sites"]) == SITES
    await api.hub.buckets.runs.change(
        lambda old: old.model_copy(update={"state": "completed"}), project="alpha", run=run
    )
    told: dict[str, list[dict[str, Any]]] = {}
    for query in ("", "?brief=true", "?after=4"):
        headers = {"Authorization": f"Bearer {owner}"}
        async with api.client.get(f"/v1/projects/alpha/runs/{run}/events{query}", headers=headers) as response:
            lines = (await response.text()).splitlines()
        told[query] = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    assert len(told["?brief=true"]) == len(told[""])
    assert len(told["?after=4"]) == len(told[""]) - 4
    assert "sites" in told[""][-1]["data"]
    assert told["?brief=true"][-1]["data"].keys() == {"metrics"}


async def test_lists_come_in_pages(api: Any, owner: str, operator: str) -> None:
    for name in ("beta", "delta", "gamma"):
        await api.ok("POST", "/v1/projects", owner, {"name": name, "schema": {"kind": "open"}})
    runs = [(await api.ok("POST", "/v1/projects/alpha/runs", owner, {"job": JOB}))["run"] for _ in range(3)]
    newest_first = [each["run"] for each in (await api.ok("GET", "/v1/projects/alpha/runs", owner))["runs"]]
    assert sorted(newest_first) == sorted(runs)
    for path, name, key, whole in (
        ("/v1/projects", "projects", "name", ["alpha", "beta", "delta", "gamma"]),
        ("/v1/projects/alpha/runs", "runs", "run", newest_first),
    ):
        found: list[str] = []
        while part := (await api.ok("GET", f"{path}?limit=2{f'&after={found[-1]}' if found else ''}", owner))[name]:
            assert len(part) <= 2
            found += [each[key] for each in part]
        assert found == whole
    assert (await api.ok("GET", "/v1/projects?after=b", owner))["projects"][0]["name"] == "beta"
    assert (await api.refused("GET", "/v1/projects/alpha/runs?after=none", owner))[1] == "not-found"
    for path in ("/v1/keys", "/v1/people"):
        assert len(next(iter((await api.ok("GET", f"{path}?limit=1", operator)).values()))) <= 1
    assert (await api.refused("GET", "/v1/projects?limit=0", owner))[1] == "invalid-input"
