"""Masked runs by real processes, by one compensator and by three that share masks: the same bits as without masks,
whoever is killed, with one of three gone, and nothing plain on its way."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from e2e.digits_runs import SCHEMA, SITES, digest, share_digits, submit
from e2e.killed import kill
from e2e.one_site_more import add_west
from hanse.embedded.deployment import Deployment
from hanse.hub import Run
from hanse_fabric.errors import HanseError
from hanse_fabric.identity.sealing import SealingKey

# The first fits on the bus, the second goes through the object store.
HIDDEN = {"inline": [8], "stored": [256, 64]}
ROUNDS = {"inline": 3, "stored": 2}
NAMES = ["sharing-1", "sharing-2", "sharing-3"]
ONE, SHARED = 5, 6
"""Seeds: sites mask a work, and what is near, for one compensator or for those who share."""

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


def job(mode: str, size: str, *, seed: int, **masking: Any) -> dict[str, Any]:
    return {
        "rounds": ROUNDS[size],
        "participants": {"minimum": len(SITES), "deadline": 120},
        "model": {"name": "mlp", "hidden": HIDDEN[size]},
        "train": {"epochs": 1, "batch_size": 32, "optimizer": {"name": "sgd", "lr": 0.05}},
        "checkpoint_every": 0,
        "seed": seed,
        "secure_aggregation": {"mode": mode, **masking},
    }


def masked(size: str = "inline") -> dict[str, Any]:
    return job("compensator", size, seed=ONE, minimum=3)


def shared(size: str = "inline", **masking: Any) -> dict[str, Any]:
    return job("compensator", size, seed=SHARED, **{"compensators": NAMES, "needed": 2, **masking})


UNMEASURED = {"evaluate": {"every": 0}}
"""Of runs whose models are compared alone: no bit of them comes from their evaluations."""


@dataclass
class Scene:
    """A deployment, and the runs without masks that others are held against, each made once."""

    deployment: Deployment
    made: dict[tuple[str, int], tuple[str, Run]] = field(default_factory=dict)

    async def plain(self, size: str, seed: int) -> tuple[str, Run]:
        """The digest of the model of such a run, and the run."""
        if (size, seed) not in self.made:
            run = await submit(self.deployment, job("ring", size, seed=seed))
            self.made[size, seed] = await digest(run), run
        return self.made[size, seed]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    folder = tmp_path_factory.mktemp("masked")
    files = share_digits(folder / "data")
    async with Deployment(folder, "digits", files, SCHEMA, nursery=True, sharing=len(NAMES)) as started:
        yield Scene(started)


@pytest.mark.parametrize("size", sorted(HIDDEN))
async def test_a_masked_run_ends_in_the_bits_of_the_same_run_without_masks(scene: Scene, size: str) -> None:
    expected, plain = await scene.plain(size, ONE)
    run = await submit(scene.deployment, masked(size))
    assert await digest(run) == expected
    assert run.view.metrics == plain.view.metrics
    assert run.view.metrics["accuracy"] > 0
    check_what_left(scene.deployment, run, ROUNDS[size])


async def test_shared_masks_leave_the_bits_of_the_same_run_without_masks(scene: Scene) -> None:
    """Through the object store; on the bus those do whose compensators are killed, below."""
    deployment = scene.deployment
    expected, plain = await scene.plain("stored", SHARED)
    run = await submit(deployment, shared("stored"))
    assert await digest(run) == expected
    assert run.view.metrics == plain.view.metrics
    told = await asyncio.to_thread(lambda: list(deployment.project.audit()))
    sums = [entry["detail"] for entry in told if entry["action"] == "masks.sum" and "compensators" in entry["detail"]]
    assert sorted(sums[-1]["compensators"]) == sorted(deployment.hub.sharing_keys.values())


async def test_compensator_and_aggregator_killed_in_the_middle_change_no_bit(scene: Scene) -> None:
    expected, _ = await scene.plain("inline", ONE)
    run = await submit(scene.deployment, masked())
    waiting = asyncio.create_task(digest(run))
    for victim in ("compensator", "aggregator", "compensator"):
        if waiting.done():
            break
        await kill(scene.deployment, victim)
    assert await waiting == expected


async def test_a_job_of_compensators_that_are_not_pinned_gets_nothing(scene: Scene) -> None:
    others = {"participants": {"minimum": 3, "deadline": 20, "retries": 0}}
    run = await submit(scene.deployment, shared(needed=3) | others)
    await asyncio.to_thread(run.wait)
    assert run.state == "failed"
    events = await asyncio.to_thread(lambda: list(run.watch()))
    refused = [e.data for e in events if e.kind == "task-answered" and e.data["outcome"] == "refused"]
    assert {each["participant"] for each in refused} == set(SITES)
    assert all("masking.compensators" in each["reason"] for each in refused)


async def test_an_unknown_compensator_fails_the_run_with_its_name(scene: Scene) -> None:
    run = await submit(scene.deployment, shared(compensators=["sharing-1", "sharing-2", "nobody"]))
    await asyncio.to_thread(run.wait)
    assert run.state == "failed"
    assert "nobody" in run.view.reason


async def test_more_than_all_compensators_are_not_needed(scene: Scene) -> None:
    with pytest.raises(HanseError, match="needed: 4 of 3 compensators"):
        await submit(scene.deployment, shared(needed=4))


@pytest.mark.parametrize(
    "victims", [[*NAMES, *NAMES], ["coordinator", "aggregator", NAMES[0], "coordinator", NAMES[1]]], ids=["they", "all"]
)
async def test_killed_compensators_and_hub_change_no_bit(scene: Scene, victims: list[str]) -> None:
    expected, _ = await scene.plain("inline", SHARED)
    run = await submit(scene.deployment, shared())
    waiting = asyncio.create_task(digest(run))
    for victim in victims:
        if waiting.done():
            break
        pid = scene.deployment.hub.supervisor.pids().get(victim)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.2)
    assert await waiting == expected


async def test_with_one_of_three_gone_for_good_the_run_goes_on(scene: Scene) -> None:
    """The last test of those who share: they are one fewer from here on."""
    hub = scene.deployment.hub
    expected, _ = await scene.plain("inline", SHARED)
    stopped = hub.supervisor.pids()["sharing-2"]
    os.kill(stopped, signal.SIGSTOP)  # it hangs, and is never started again
    try:
        assert await digest(await submit(scene.deployment, shared() | UNMEASURED)) == expected
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert len(base64.b64decode(hub.sharing_keys["sharing-2"])) == 32


async def test_a_site_that_pins_another_compensator_sends_nothing_and_the_others_sum_stands(scene: Scene) -> None:
    """The last test of this deployment, which has one site more from here on."""
    deployment = scene.deployment
    pinned = base64.b64encode(SealingKey.create().public_bytes).decode()
    await add_west(deployment, {"masking": {"compensator": pinned}})
    description = masked() | UNMEASURED
    description["participants"] |= {"quorum": 0.75}
    run = await submit(deployment, description)
    await digest(run)
    events = await asyncio.to_thread(lambda: list(run.watch()))
    [west, *_] = [e.data for e in events if e.kind == "task-answered" and e.data["participant"] == "west"]
    assert (west["outcome"], west["code"]) == ("refused", "policy")
    assert "masking.compensator" in west["reason"]
    assert deployment.hub.compensator_key in west["reason"]
    log = (deployment.home("west") / "outbox.jsonl").read_text()
    assert {json.loads(line)["what"] for line in log.splitlines()} <= {"join", "presence", "result"}


def check_what_left(deployment: Deployment, run: Run, rounds: int) -> None:
    """By the sites' own outbox logs: masked updates and tallies; and no plain file is left behind."""
    for site in SITES:
        home = deployment.home(site)
        entries = [json.loads(line) for line in (home / "outbox.jsonl").read_text().splitlines()]
        left = [e["what"] for e in entries if run.id in e["to"] and e["what"] not in ("progress", "link-request")]
        first = ["update"] if "update" in left else []  # the first model, which one site makes from the seed
        assert left.count("masked-update") == rounds
        assert left.count("tally") == 2 * rounds  # training, and evaluation
        assert left.count("update") == len(first)
        assert left.count("result") == 2 * rounds + len(first)
        assert not list(Path(home / "work").glob("*.plain*"))
