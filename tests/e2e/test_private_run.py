"""Private runs by real processes: noise at the sites, in the sum, in every mode of it, or at the hub; ledgers charged,
budgets that hold."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from e2e.digits_runs import files_of
from e2e.one_site_more import add_west
from hanse.embedded.deployment import Deployment
from hanse.hub import Run
from hanse_datapod.policy.privacy import PrivacyPolicy
from hanse_datapod.privacy.books import balances
from hanse_fabric.chain import read_chain
from hanse_fabric.errors import HanseError
from hanse_learning.digits import write_shares
from hanse_privacy.ledger import NAME

SITES = ["north", "east", "south"]
SCHEMA = {"kind": "array", "shape": [8, 8], "task": "classification", "classes": 10, "minimum": 0, "maximum": 1}
ROUNDS = 2
SGD = {"placement": "local", "mechanism": "dp_sgd", "epsilon": 8.0}
NOISY_SGD = {"placement": "local", "mechanism": "dp_sgd", "noise_multiplier": 0.2}
"""For its noise no accountant is asked, which takes a site and its worker a second each, again when they have died."""
SHARES = {"placement": "distributed", "mechanism": "discrete_gaussian", "epsilon": 50.0, "clip": 0.5}
CENTRAL = {"placement": "central", "mechanism": "gaussian", "epsilon": 50.0, "adaptive_clip": 0.5}
ROTATED = {"rotate": True, "bits": 16, "bound": 1.0}
SEEDS = {"compensator": 1, "pairwise": 2}
IN_SUMS = [
    ("oblivious", "compensator", 1e-4),
    ("oblivious-shuffled", "compensator", 1e-4),
    ("distributed-gamma", "pairwise", 1e-4),
    ("local-laplace", "pairwise", 1e-4),
    ("gaussian", "compensator", 1e-4),
    ("rotated", "compensator", 1e-4),
    ("oblivious", "compensator", 0.2),
    ("distributed-gamma", "compensator", 0.2),
]
"""Noise, the masks' mode, and the noise's multiplier."""
KERNEL = {"name": "cnn", "channels": [4, 8], "normalization": "kernel", "activation": "mish"}

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


def job(privacy: dict[str, Any], **changes: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "rounds": ROUNDS,
        "participants": {"minimum": len(SITES), "deadline": 120},
        "model": {"name": "logistic"},
        "train": {"epochs": 1, "batch_size": 64, "optimizer": {"name": "sgd", "lr": 0.5}},
        "checkpoint_every": 0,
        "privacy": privacy,
    }
    return body | changes


def noisy_sum(noise: str, mode: str, multiplier: float) -> dict[str, Any]:
    shares: dict[str, Any] = {"noise": noise}
    if noise in ("gaussian", "rotated"):
        shares = {"mechanism": "discrete_gaussian", "colluding": 1}
    elif noise == "distributed-gamma":
        shares["colluding"] = 1
    privacy = {
        "placement": "distributed", "mechanism": "discrete_laplace", "clip": 50.0, "noise_multiplier": multiplier,
    }  # fmt: skip
    return job(
        privacy | shares,
        rounds=1,
        weighting="uniform",
        # A work, and those near to it, have one compensator, or none, and one norm: these begin with other models.
        seed=SEEDS[mode] + {"gaussian": 2, "rotated": 4}.get(noise, 0),
        train={"epochs": 8, "batch_size": 32, "optimizer": {"name": "sgd", "lr": 0.5}},
        secure_aggregation={"mode": mode} | (ROTATED if noise == "rotated" else {}),
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def deployment(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployment]:
    folder = tmp_path_factory.mktemp("private")
    write_shares(folder / "data", SITES, seed=3)
    for name in SITES:
        as_images(folder / "data" / name)
    files = files_of(folder / "data", SITES)
    async with Deployment(folder, "digits", files, SCHEMA, nursery=True) as started:
        yield started


def as_images(share: Path) -> None:
    """The digits' 64 numbers as 8 x 8, for convolutions."""
    for path in (share / "train.npz", share / "test.npz"):
        with np.load(path) as given:
            np.savez(path, x=given["x"].reshape(-1, 8, 8), y=given["y"])


async def ended(deployment: Deployment, description: dict[str, Any]) -> Run:
    run = await asyncio.to_thread(deployment.project.run, description)
    await asyncio.to_thread(run.wait)
    assert run.state == "completed", f"{run.state}: {run.view.reason}"
    return run


async def killing(deployment: Deployment, description: dict[str, Any], *names: str) -> Run:
    """The completed run of a job in whose first round these processes are killed."""
    run = await asyncio.to_thread(deployment.project.run, description)
    before = deployment.hub.supervisor.pids()

    def watch() -> None:
        for event in run.watch():
            if event.kind == "round-started" and event.round == 1:
                for name in names:
                    os.kill(before[name], signal.SIGKILL)

    await asyncio.to_thread(watch)
    await asyncio.to_thread(run.wait)
    assert run.state == "completed", f"{run.state}: {run.view.reason}"
    now = deployment.hub.supervisor.pids()
    assert all(now.get(name) != before[name] for name in names)
    return run


def charges(home: Path, run: Run) -> list[dict[str, Any]]:
    """Of noise: what rounding may do besides has charges of its own."""
    own = [entry for entry in read_chain(home, NAME) if entry["run"] == run.id and entry["what"] == "charge"]
    return [entry for entry in own if entry["event"]["kind"] != "chance"]


async def test_dp_sgd_is_charged_at_every_site_within_the_runs_epsilon(deployment: Deployment) -> None:
    run = await ended(deployment, job(SGD))
    assert "any one example" in run.view.privacy
    for site in SITES:
        home = deployment.home(site)
        assert len(charges(home, run)) == ROUNDS
        spent = balances(home, PrivacyPolicy())[0].spent
        assert 7.5 < spent <= 8.0


async def test_a_kernel_normalized_network_trains_privately_and_a_site_that_dies_in_the_middle_is_charged_once(
    deployment: Deployment,
) -> None:
    train = {
        "epochs": 1, "batch_size": 64, "optimizer": {"name": "sgd", "lr": 0.5}, "clipping": {"rule": "automatic"},
        "schedule": {"name": "cosine", "length": ROUNDS, "warm_up": 1}, "weights_average": 0.9,
        "augmentation": {"crop": 1, "copies": 2},
    }  # fmt: skip
    run = await killing(deployment, job(NOISY_SGD, model=KERNEL, train=train), "datapod-north")
    for site in SITES:
        assert len(charges(deployment.home(site), run)) == ROUNDS


async def test_shares_of_noise_in_a_masked_sum_noise_at_the_hub_and_private_control_variates_outlive_kills(
    deployment: Deployment,
) -> None:
    masked = {"secure_aggregation": {"mode": "compensator"}, "weighting": "uniform"}
    scaffold = {"algorithm": "scaffold", "epochs": 1, "batch_size": 64, "optimizer": {"name": "sgd", "lr": 0.5}}
    jobs = (
        (job(SHARES, model=KERNEL, **masked), ["datapod-south", "compensator"]),
        (job(CENTRAL, model=KERNEL, weighting="uniform"), ["aggregator", "datapod-east"]),
        (job(NOISY_SGD, model=KERNEL, train=scaffold), ["datapod-north", "coordinator"]),
    )
    for description, names in jobs:
        run = await killing(deployment, description, *names)
        assert run.view.metrics["accuracy"] > 0
        for site in SITES:
            assert len(charges(deployment.home(site), run)) == ROUNDS


async def test_noise_of_every_mode_is_in_the_sum_and_is_charged(deployment: Deployment) -> None:
    charged = []
    for noise, mode, multiplier in IN_SUMS:
        run = await ended(deployment, noisy_sum(noise, mode, multiplier))
        # Little noise leaves the model as it is; noise as large as an update does not.
        assert (run.view.metrics["accuracy"] > 0.5) is (multiplier < 0.1), (noise, mode)
        entries = [entry for entry in read_chain(deployment.home("north"), NAME) if entry["run"] == run.id]
        charged += [entry["event"]["kind"] for entry in entries if "distributed" in entry.get("note", "")]
    again = noisy_sum("gaussian", "compensator", 1e-4) | {"secure_aggregation": {"mode": "pairwise"}}
    run = await asyncio.to_thread(deployment.project.run, again)
    await asyncio.to_thread(run.wait)
    assert run.state == "failed"
    assert "this work was done for another project, or with another compensator" in run.view.reason
    assert [entry for entry in read_chain(deployment.home("north"), NAME) if entry["run"] == run.id] == []
    assert (len(charged), charged.count("chance")) == (2 * len(IN_SUMS), len(IN_SUMS))  # the noise, and its rounding


async def test_a_job_whose_settings_do_not_compose_is_refused_when_it_is_submitted(deployment: Deployment) -> None:
    with pytest.raises(HanseError, match="batch norm"):
        await asyncio.to_thread(deployment.project.run, job(SGD, model={"name": "mlp", "batch_norm": True}))


async def test_a_site_whose_budget_is_too_small_refuses_and_says_what_remains(deployment: Deployment) -> None:
    """The last test of this deployment, which has one site more from here on."""
    await add_west(deployment, {"privacy": {"epsilon": 1.0}})
    description = job(NOISY_SGD)
    description["participants"] |= {"quorum": 0.75}
    run = await ended(deployment, description)
    events = await asyncio.to_thread(lambda: list(run.watch()))
    answered = [e.data for e in events if e.kind == "task-answered" and e.data["participant"] == "west"]
    # A slow machine may have asked it for the first model, too, which costs nothing.
    [west, *_] = [data for data in answered if data["step"] not in ("r0-initialize", "preflight")]
    assert (west["outcome"], west["code"]) == ("refused", "policy")
    assert "epsilon 0 of 1 is spent" in west["reason"]
    assert "1 remains" in west["reason"]
