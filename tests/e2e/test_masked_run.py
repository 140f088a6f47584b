"""Masked runs by real processes: the same bits as without masks, whoever is killed, and nothing plain on its way."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from e2e.digits_runs import SCHEMA, SITES, digest, share_digits, submit
from e2e.killed import kill
from e2e.one_site_more import add_west
from hanse.embedded.deployment import Deployment
from hanse.hub import Run
from hanse_fabric.identity.sealing import SealingKey

ROUNDS = 3
# The first fits on the bus, the second goes through the object store.
HIDDEN = {"inline": [8], "stored": [256, 64]}

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


def job(mode: str, size: str = "inline", *, minimum: int = 3) -> dict[str, Any]:
    return {
        "rounds": ROUNDS,
        "participants": {"minimum": len(SITES), "deadline": 120},
        "model": {"name": "mlp", "hidden": HIDDEN[size]},
        "train": {"epochs": 1, "batch_size": 32, "optimizer": {"name": "sgd", "lr": 0.05}},
        "checkpoint_every": 0,
        "seed": 5,
        "secure_aggregation": {"mode": mode, "minimum": minimum},
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def deployment(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployment]:
    folder = tmp_path_factory.mktemp("masked")
    files = share_digits(folder / "data")
    async with Deployment(folder, "digits", files, SCHEMA, nursery=True) as started:
        yield started


@pytest.mark.parametrize("size", sorted(HIDDEN))
async def test_a_masked_run_ends_in_the_bits_of_the_same_run_without_masks(deployment: Deployment, size: str) -> None:
    plain = await submit(deployment, job("ring", size))
    expected = await digest(plain)
    masked = await submit(deployment, job("compensator", size))
    assert await digest(masked) == expected
    assert masked.view.metrics == plain.view.metrics
    assert masked.view.metrics["accuracy"] > 0
    check_what_left(deployment, masked)


async def test_compensator_and_aggregator_killed_in_the_middle_change_no_bit(deployment: Deployment) -> None:
    expected = await digest(await submit(deployment, job("compensator")))
    run = await submit(deployment, job("compensator"))
    waiting = asyncio.create_task(digest(run))
    for victim in ("compensator", "aggregator", "compensator"):
        if waiting.done():
            break
        await kill(deployment, victim)
    assert await waiting == expected


async def test_a_site_that_pins_another_compensator_sends_nothing_and_the_others_sum_stands(
    deployment: Deployment,
) -> None:
    """The last test of this deployment, which has one site more from here on."""
    pinned = base64.b64encode(SealingKey.create().public_bytes).decode()
    await add_west(deployment, {"masking": {"compensator": pinned}})
    description = job("compensator")
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


def check_what_left(deployment: Deployment, run: Run) -> None:
    """By the sites' own outbox logs: masked updates and tallies; and no plain file is left behind."""
    for site in SITES:
        home = deployment.home(site)
        entries = [json.loads(line) for line in (home / "outbox.jsonl").read_text().splitlines()]
        left = [e["what"] for e in entries if run.id in e["to"] and e["what"] not in ("progress", "link-request")]
        first = ["update"] if "update" in left else []  # the first model, which one site makes from the seed
        assert left.count("masked-update") == ROUNDS
        assert left.count("tally") == 2 * ROUNDS  # training, and evaluation
        assert left.count("update") == len(first)
        assert left.count("result") == 2 * ROUNDS + len(first)
        assert not list(Path(home / "work").glob("*.plain*"))
