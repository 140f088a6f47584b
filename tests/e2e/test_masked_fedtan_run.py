"""FedTAN under pairwise masks, by real processes: the bits of ring arithmetic, also where a site dies in the middle."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from e2e.deployed import DeployedHub, completed
from e2e.sites_online import wait_online
from hanse.hub import Hub, Project, Run
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.tensors.file import read_tensors

SITES = {"east": 7, "north": 11, "south": 8}
pytestmark = pytest.mark.timeout(300)


def job(mode: str | None, *, rounds: int = 2, patience: float = 60.0, **algorithm: Any) -> dict[str, Any]:
    return {
        "rounds": rounds,
        "participants": {"minimum": 3, "deadline": 120},
        "model": {"name": "mlp", "hidden": [6], "batch_norm": True, "dtype": "float64"},
        "train": {
            "algorithm": {"name": "fedtan", "patience": patience, **algorithm},
            "steps": 1, "batch_size": "all", "optimizer": {"name": "sgd", "lr": 0.3},
        },
        "evaluate": {"every": 0},
        "seed": 11,
        **({} if mode is None else {"secure_aggregation": {"mode": mode, "bits": 64, "largest_weight": 64}}),
    }  # fmt: skip


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sites")


@pytest.fixture(scope="module")
def project(hub: DeployedHub, client: Hub, homes: Path) -> Project:
    schema = {"kind": "array", "shape": [4], "task": "classification", "classes": 3}
    made = client.projects.create("masked-together", schema=schema)
    rng = np.random.default_rng(5)
    for i, (name, size) in enumerate(SITES.items()):
        path = homes / f"{name}.npz"
        x = (rng.standard_normal((size, 4)) + 3 * i).astype(np.float32)
        np.savez(path, x=x, y=np.full(size, i, np.int64))
        hub.start_datapod(made, name, home=homes / name, data=path, test=path)
    wait_online(made, len(SITES))
    return made


def digests(run: Run) -> dict[int, str]:
    return {event.round: event.data["digest"] for event in run.watch() if event.kind == "round-finished"}


def model(project: Project, run: Run, path: Path) -> dict[str, np.ndarray]:
    version = next(one for one in project.models() if one.view.digest == run.view.model_digest)
    return {name: array.copy() for name, array in read_tensors(version.download(path))[1].items()}


@pytest.fixture(scope="module")
def in_ring(project: Project) -> Run:
    return completed(project.run(job("ring")))


def test_a_masked_run_has_the_bits_of_the_ring_and_nearly_the_numbers_of_the_plain_run(
    in_ring: Run, project: Project, tmp_path: Path
) -> None:
    masked = completed(project.run(job("pairwise")))
    assert digests(masked) == digests(in_ring)
    plain = completed(project.run(job(None)))
    expected = model(project, plain, tmp_path / "plain")
    found = model(project, masked, tmp_path / "masked")
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, atol=1e-6, err_msg=name)


def sums_of(homes: Path, name: str) -> int:
    return (homes / name / "outbox.jsonl").read_text().count('"what":"sum"')


def test_a_site_that_is_killed_between_two_sums_ends_with_the_same_bits(
    in_ring: Run, hub: DeployedHub, project: Project, homes: Path
) -> None:
    """South is stopped, so that east waits in a sum; then east dies, comes back and goes on where it was."""
    before = sums_of(homes, "east")
    pids = hub.hub.supervisor.pids()
    run = project.run(job("pairwise"))
    end = time.monotonic() + 120
    while sums_of(homes, "east") == before:
        assert time.monotonic() < end, "no sum was begun"
        time.sleep(0.005)
    os.kill(pids["datapod-south"], signal.SIGSTOP)
    try:
        os.kill(pids["datapod-east"], signal.SIGKILL)
    finally:
        os.kill(pids["datapod-south"], signal.SIGCONT)
    assert digests(completed(run)) == digests(in_ring)


def test_sums_beyond_the_bound_end_the_run_without_being_told(in_ring: Run, project: Project) -> None:
    assert in_ring.state == "completed"
    asked = job("pairwise", rounds=1)
    asked["secure_aggregation"]["buffer_bound"] = 0.001
    asked["seed"] += 1  # the same work is not cut to another bound
    run = project.run(asked)
    run.wait()
    assert run.state == "failed"
    assert "the site's own log says which" in (run.view.reason or "")
    assert "0.001" not in (run.view.reason or "")
    assert "of all 3 participants or of none" in (run.view.reason or "")


def test_fedtan_with_a_compensator_is_refused_with_a_hint_at_pairwise_masks(project: Project) -> None:
    with pytest.raises(HanseError, match="middle of a step") as raised:
        project.run(job("compensator"))
    assert raised.value.code is ErrorCode.INVALID_INPUT
    assert "mode: pairwise" in raised.value.hint


def test_where_a_site_is_gone_for_good_no_sum_is_made_without_it(
    in_ring: Run, hub: DeployedHub, project: Project, homes: Path
) -> None:
    assert in_ring.state == "completed"
    before = sums_of(homes, "east")
    asked = job("pairwise", rounds=200, patience=1.0)
    asked["participants"] |= {"quorum": 0.5, "retries": 0, "deadline": 30, "grace": 1}
    run = project.run(asked)
    end = time.monotonic() + 120
    while sums_of(homes, "east") == before:
        assert time.monotonic() < end, "no sum was begun"
        time.sleep(0.005)
    hub.kill_for_good("datapod-south")
    run.wait()
    assert run.state == "failed"
    assert all(event.data["participants"] == sorted(SITES) for event in run.watch() if event.kind == "round-finished")
