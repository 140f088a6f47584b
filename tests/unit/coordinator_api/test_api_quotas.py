"""Quotas of a project: what is beyond one is refused, and the refusal names it, what is used and what is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from hanse_coordinator.quotas import Quotas
from hub_api import Api, Site

JOB = {"rounds": 2, "model": {"name": "mlp", "hidden": [8]}}
OBJECTS, RUNS = "/v1/projects/alpha/objects", "/v1/projects/alpha/runs"


def announced(digit: str, size: int) -> dict[str, Any]:
    return {"digest": digit * 64, "size": size, "step": {"digests": [digit * 64]}}


def limited(api: Api, **quotas: int) -> None:
    api.hub.quotas.quotas = Quotas(**quotas)


async def refused(api: Api, path: str, owner: str, body: Any) -> str:
    status, code, message = await api.refused("POST", path, owner, body)
    assert (status, code) == (403, "quota")
    return message


async def test_runs_beyond_the_quota_wait_for_others_to_end(api: Api, owner: str) -> None:
    limited(api, runs=2)
    made = [(await api.ok("POST", RUNS, owner, {"job": JOB}))["run"] for _ in range(2)]
    told = await refused(api, RUNS, owner, {"job": JOB})
    assert told == "quota runs of project alpha: 2 are used, 1 more asked for, 2 are allowed"
    await api.hub.buckets.runs.change(
        lambda run: run.model_copy(update={"state": "completed"}), project="alpha", run=made[0]
    )
    await api.ok("POST", RUNS, owner, {"job": JOB})


async def test_a_site_beyond_the_quota_keeps_its_token_until_another_is_revoked(api: Api, owner: str) -> None:
    limited(api, sites=1)
    invite = "/v1/projects/alpha/invitations"
    tokens = [(await api.ok("POST", invite, owner, {"participant": name}))["token"] for name in ("north", "south")]
    first, second = Site(), Site()
    for _ in range(2):  # who repeats a joining is no other site
        await api.ok("POST", "/v1/join", body=await first.body(api, tokens[0]))
    status, code, message = await api.refused("POST", "/v1/join", body=await second.body(api, tokens[1]))
    assert (status, code) == (403, "quota")
    assert message == "quota sites of project alpha: 1 are used, 1 more asked for, 1 are allowed"
    await api.ok("POST", "/v1/projects/alpha/participants/north/revoke", owner)
    api.clock.advance(5)
    await api.ok("POST", "/v1/join", body=await second.body(api, tokens[1]))


async def test_an_object_that_the_storage_has_no_room_for_is_not_begun(api: Api, owner: str) -> None:
    limited(api, storage=1000)
    api.hub.store.put("models/alpha/run/x", bytes(500))
    api.hub.store.put("models/beta/run/x", bytes(5000))
    await api.ok("POST", OBJECTS, owner, announced("1", 400))
    told = await refused(api, OBJECTS, owner, announced("2", 400))
    assert told == "quota storage of project alpha: 900 are used, 400 more asked for, 1000 are allowed"
    api.hub.store.put("updates/alpha/run/y", bytes(500))
    api.clock.advance(60)
    assert "1000 are used" in await refused(api, RUNS, owner, {"job": JOB})
    api.hub.store.delete("models/alpha/run/x")
    api.clock.advance(5)
    await api.ok("POST", RUNS, owner, {"job": JOB})


async def test_a_days_bytes_are_counted_over_all_coordinators_and_begin_anew_the_next_day(
    api: Api, other_api: Api, owner: str
) -> None:
    for one in (api, other_api):
        limited(one, bytes_a_day=1000)
    other_api.hub.quotas.instance = "two"
    await api.ok("POST", OBJECTS, owner, announced("1", 400))
    await other_api.ok("POST", OBJECTS, owner, announced("2", 400))
    for one in (api, other_api):
        told = await refused(one, OBJECTS, owner, announced("3", 400))
        assert told == "quota bytes-a-day of project alpha: 800 are used, 400 more asked for, 1000 are allowed"
    api.clock.advance(86_400)
    await api.ok("POST", OBJECTS, owner, announced("3", 1000))


@pytest.mark.parametrize("quotas", [Quotas(), Quotas(storage=1, runs=1, sites=1, bytes_a_day=1)])
async def test_control_without_quotas_nothing_is_refused(api: Api, owner: str, quotas: Quotas) -> None:
    api.hub.quotas.quotas = quotas
    answers = [await api.call("POST", OBJECTS, owner, announced(digit, 1 << 50)) for digit in "12"]
    unlimited = quotas == Quotas()
    # Of that size, no part count fits; with a quota it is told before that.
    codes = {answer["error"]["code"] if status >= 400 else "" for status, answer in answers}
    assert codes == ({""} if unlimited else {"quota"})
