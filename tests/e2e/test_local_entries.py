"""Site code whose model has entries that the job keeps at the sites: they are in nothing that has left a site."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from e2e.test_role_views import Seen, tapped
from hanse.embedded.deployment import Deployment, SiteFiles
from hanse.hub import Run
from hanse_fabric.tensors.file import read_tensors
from views import find_secret, view_of

SITES = ["east", "north"]
ROUNDS = 2
SCHEMA = {"kind": "array", "shape": [4], "task": "classification", "classes": 2}
SMALL, LARGE = 100, 80_000
"""Parameters of an update that travels on the bus, and of one that goes straight to the object store."""
CODE = """
from pathlib import Path

import numpy as np


def remember(config, what, array):
    np.save(Path(config["train"]["secrets"]) / f"{what}-{config['seed']}-{config['round']}.npy", array)


def initialize(config):
    head = np.random.normal(size=200).astype(np.float32)
    remember(config, "begun", head)
    return {"body": np.zeros(config["model"]["size"], np.float32), "head": head}


def train(model, data, config):
    change = np.random.normal(size=200).astype(np.float32)
    head = model["head"] + change
    remember(config, "trained", head)
    remember(config, "changed", head - model["head"])
    return {"body": model["body"] + np.float32(1), "head": head}, len(data.x), {}


def test(model, data, config):
    return len(data.x), {"entries": len(model)}
"""

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@dataclass
class Scene:
    """A deployment whose sites run the code above, and all that was said on its bus."""

    deployment: Deployment
    folder: Path
    seen: Seen

    async def run(self, size: int, rules: list[dict[str, Any]]) -> tuple[Run, dict[str, np.ndarray]]:
        """A run to its end, and the sites' values and changes of the entry `head` in it, by file name."""
        number = len(list(self.folder.glob("secrets-*")))
        secrets = self.folder / f"secrets-{number}"
        secrets.mkdir()
        job = {
            "rounds": ROUNDS,
            "participants": {"minimum": len(SITES), "deadline": 120},
            "model": {"name": "own", "size": size, "state": rules},
            "code": {"name": "code", "digest": hashlib.sha256(CODE.encode()).hexdigest()},
            "train": {"secrets": str(secrets)},
            "seed": number,  # so that no run has the values of another
        }
        run = await asyncio.to_thread(self.deployment.project.run, job)
        await asyncio.to_thread(run.wait)
        return run, {path.stem: np.load(path) for path in secrets.iterdir()}

    def left(self) -> list[bytes]:
        """All that left the sites: what was said on the bus, and every file of the hub, its object store among them."""
        return [data for _, data in self.seen.messages] + list(view_of(self.folder / "hub"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    folder = tmp_path_factory.mktemp("heads")
    code, seen = folder / "code.py", Seen()
    code.write_text(CODE)
    np.savez(folder / "data.npz", x=np.ones((20, 4), np.float32), y=np.arange(20) % 2)
    # The code tells this test what it does by files of its own, which a sandbox would not let it write.
    policy = {"site_code": {"digests": [hashlib.sha256(code.read_bytes()).hexdigest()]}, "sandbox": {"mode": "none"}}
    async with Deployment(folder, "heads", {}, SCHEMA, policy=policy, nursery=True) as deployment, tapped(folder, seen):
        for site in SITES:
            child = await deployment.add_site(site, SiteFiles(folder / "data.npz", folder / "data.npz"))
            child.spec = replace(child.spec, argv=[*child.spec.argv, "--code", str(code)])
        yield Scene(deployment, folder, seen)


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_a_local_entry_of_site_codes_own_model_is_in_nothing_that_left_a_site(scene: Scene, size: int) -> None:
    run, secrets = await scene.run(size, [{"match": "head", "keep": "local"}])
    assert run.state == "completed", run.view.reason
    assert len(secrets) >= len(SITES) * (1 + 2 * ROUNDS)
    assert find_secret(scene.left(), secrets) == []
    _, model = read_tensors(await asyncio.to_thread(run.model.download, scene.folder / "model"))
    assert model.keys() == {"body"}
    np.testing.assert_array_equal(model["body"], np.full(size, ROUNDS, np.float32))

    # The control: without the rule, the same search finds each site's change of the entry in its update.
    run, secrets = await scene.run(size, [])
    assert run.state == "completed", run.view.reason
    found = {finding.secret for finding in find_secret(scene.left(), secrets)}
    assert found >= {name for name in secrets if name.startswith("changed")}
    assert sum(name.startswith("changed") for name in secrets) == len(SITES) * ROUNDS


async def test_a_rule_that_fits_no_entry_of_the_codes_model_ends_the_run_before_its_first_round(scene: Scene) -> None:
    run, _ = await scene.run(SMALL, [{"match": "haed", "keep": "local"}])
    assert (run.state, run.view.round) == ("failed", 0)
    assert "model.state[0]: 'haed' is not a group that the model has entries of" in run.view.reason
