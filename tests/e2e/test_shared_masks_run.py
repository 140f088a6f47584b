"""Runs whose masks several compensators share, each in a home of its own: the same bits as without masks, with one of
three gone, and with any of them killed in the middle."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from e2e.digits_runs import SCHEMA, SITES, digest, share_digits, submit
from hanse.embedded.deployment import Deployment
from hanse_fabric.errors import HanseError

NAMES = ["sharing-1", "sharing-2", "sharing-3"]

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


def job(mode: str, hidden: list[int], rounds: int = 2, **masking: Any) -> dict[str, Any]:
    return {
        "rounds": rounds,
        "participants": {"minimum": len(SITES), "deadline": 120},
        "model": {"name": "mlp", "hidden": hidden},
        "train": {"epochs": 1, "batch_size": 32, "optimizer": {"name": "sgd", "lr": 0.05}},
        "checkpoint_every": 0,
        "seed": 5,
        "secure_aggregation": {"mode": mode, **masking},
    }


def shared(hidden: list[int], rounds: int = 2, **masking: Any) -> dict[str, Any]:
    return job("compensator", hidden, rounds, **{"compensators": NAMES, "needed": 2, **masking})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def deployment(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployment]:
    folder = tmp_path_factory.mktemp("shared")
    files = share_digits(folder / "data")
    async with Deployment(folder, "digits", files, SCHEMA, nursery=True, sharing=len(NAMES)) as started:
        yield started


@pytest.mark.parametrize("hidden", [[8], [256, 64]], ids=["inline", "stored"])
async def test_shared_masks_leave_the_bits_of_the_same_run_without_masks(
    deployment: Deployment, hidden: list[int]
) -> None:
    plain = await submit(deployment, job("ring", hidden))
    expected = await digest(plain)
    masked = await submit(deployment, shared(hidden))
    assert await digest(masked) == expected
    assert masked.view.metrics == plain.view.metrics
    told = await asyncio.to_thread(lambda: list(deployment.project.audit()))
    sums = [entry["detail"] for entry in told if entry["action"] == "masks.sum" and "compensators" in entry["detail"]]
    assert sorted(sums[-1]["compensators"]) == sorted(deployment.hub.sharing_keys.values())


async def test_a_job_of_compensators_that_are_not_pinned_gets_nothing(deployment: Deployment) -> None:
    others = {"participants": {"minimum": 3, "deadline": 20, "retries": 0}}
    run = await submit(deployment, shared([8], needed=3) | others)
    await asyncio.to_thread(run.wait)
    assert run.state == "failed"
    events = await asyncio.to_thread(lambda: list(run.watch()))
    refused = [e.data for e in events if e.kind == "task-answered" and e.data["outcome"] == "refused"]
    assert {each["participant"] for each in refused} == set(SITES)
    assert all("masking.compensators" in each["reason"] for each in refused)


async def test_an_unknown_compensator_fails_the_run_with_its_name(deployment: Deployment) -> None:
    run = await submit(deployment, shared([8], compensators=["sharing-1", "sharing-2", "nobody"]))
    await asyncio.to_thread(run.wait)
    assert run.state == "failed"
    assert "nobody" in run.view.reason


async def test_more_than_all_compensators_are_not_needed(deployment: Deployment) -> None:
    with pytest.raises(HanseError, match="needed: 4 of 3 compensators"):
        await submit(deployment, shared([8], needed=4))


@pytest.mark.parametrize(
    "victims", [[*NAMES, *NAMES], ["coordinator", "aggregator", NAMES[0], "coordinator", NAMES[1]]], ids=["they", "all"]
)
async def test_killed_compensators_and_hub_change_no_bit(deployment: Deployment, victims: list[str]) -> None:
    seed = 6 + len(victims)
    expected = await digest(await submit(deployment, job("ring", [8], 4) | {"seed": seed}))
    run = await submit(deployment, shared([8], 4) | {"seed": seed})
    waiting = asyncio.create_task(digest(run))
    for victim in victims:
        if waiting.done():
            break
        pid = deployment.hub.supervisor.pids().get(victim)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.7)
    assert await waiting == expected


async def test_with_one_of_three_gone_for_good_the_run_goes_on(deployment: Deployment) -> None:
    """The last test of this deployment, which has one compensator fewer from here on."""
    expected = await digest(await submit(deployment, job("ring", [8])))
    stopped = deployment.hub.supervisor.pids()["sharing-2"]
    os.kill(stopped, signal.SIGSTOP)  # it hangs, and is never started again
    try:
        assert await digest(await submit(deployment, shared([8]))) == expected
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert len(base64.b64decode(deployment.hub.sharing_keys["sharing-2"])) == 32
