"""Code of Flower and NVFlare at sites, beside those frameworks themselves: `make bench-adapters [ARGS=--json]`.

Each app and script of `examples/adapters` trains at three sites of a hub, plain and masked, and under its own
framework: Flower's server, strategies and client apps (see `adapters_flower.py`), NVFlare's simulator. Its files are
not changed, and the sites' policies name their digests. One counts where all three end with the same accuracy (or R2),
and the masked model is the plain one to what rounding moves it by.

`flower_apps`, `nvflare_scripts`: how many do. `overhead_s_per_round`: how much longer a round takes, its evaluation
among it, with a logistic regression in numpy as a Flower app or as an NVFlare script, whichever takes longer, than with
the built-in trainer at the same sites on their data; medians.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rounds import time_rounds
from scratch import scratch

from adapters_at_sites import APPS, SCHEMA, SCRIPTS, Adapter, arguments_at, lay_out, site_code, write_shares
from foreign_interpreters import TORCH, interpreter
from hanse.embedded.deployment import Deployment, SiteFiles
from hanse_fabric.tensors.file import read_tensors

Model = dict[str, np.ndarray]
SITES = ["site-1", "site-2", "site-3"]
HERE = Path(__file__).parent
MORE = (TORCH, "pandas")
SAME_METRIC, SAME_MODEL, MASK_ERROR = 0.01, 1e-3, 1e-5
"""How far apart accuracies may be, which have steps of 1 / 270 here; models, which other numbers of threads round
otherwise, relative to their largest entry; and masked models from plain ones."""
_ENGINE_S = 900


@dataclass(frozen=True, slots=True)
class Compared:
    """What one has come to in its three places."""

    adapter: Adapter
    plain: float
    masked: float
    own: float
    model_distance: float
    masked_distance: float

    @property
    def same(self) -> bool:
        """Whether all three are the same."""
        near = max(abs(self.plain - self.masked), abs(self.plain - self.own)) <= SAME_METRIC
        return near and self.model_distance <= SAME_MODEL and self.masked_distance <= MASK_ERROR

    def __str__(self) -> str:
        return (
            f"{self.adapter.kind:8} {self.adapter.name:18} {self.adapter.metric:9} plain {self.plain:.4f}  masked "
            f"{self.masked:.4f}  own {self.own:.4f}  model apart {self.model_distance:.1e}, masked "
            f"{self.masked_distance:.1e}  {'same' if self.same else 'DIFFERS'}"
        )


class Bench:
    """A deployment whose sites have all code."""

    def __init__(self, folder: Path, deployment: Deployment, files: dict[str, Path], pythons: dict[str, Path]) -> None:
        self._folder, self._deployment, self._files, self._pythons = folder, deployment, files, pythons

    async def compare(self, adapter: Adapter, rounds: int) -> Compared:
        """Train in all three places."""
        plain, plain_model = await self._at_sites(adapter, rounds)
        masked, masked_model = await self._at_sites(adapter, rounds, secure_aggregation={"mode": "compensator"})
        own, own_model = await asyncio.to_thread(self._in_its_framework, adapter, rounds)
        return Compared(
            adapter, plain, masked, own, _distance(plain_model, own_model), _distance(plain_model, masked_model)
        )

    async def overhead(self, adapter: Adapter, rounds: int) -> float:
        """Seconds that a round takes longer than with the built-in trainer."""
        native = {
            "rounds": rounds, "participants": {"minimum": len(SITES)}, "model": {"name": "logistic"},
            "train": {"epochs": 5, "batch_size": 512, "optimizer": {"name": "sgd", "lr": 0.1}},
            "evaluate": {"metrics": []},
        }  # fmt: skip
        foreign = await time_rounds(self._deployment, await self._job(adapter, rounds))
        beside = await time_rounds(self._deployment, native)
        return foreign.p50 - beside.p50

    async def _job(self, adapter: Adapter, rounds: int) -> dict[str, Any]:
        job = adapter.job(rounds, len(SITES))
        if adapter.first:
            job["initial_model"] = await asyncio.to_thread(self._deployment.project.upload_model, adapter.first_model())
        return job

    async def _at_sites(self, adapter: Adapter, rounds: int, **more: Any) -> tuple[float, Model]:
        job = await self._job(adapter, rounds)
        run = await asyncio.to_thread(self._deployment.project.run, {**job, **more})
        await asyncio.to_thread(run.wait)
        if run.state != "completed":
            raise RuntimeError(f"{adapter.name}: {run.view.reason}")
        path = await asyncio.to_thread(run.model.download, self._folder / f"{run.id}.safetensors")
        return run.view.metrics[adapter.metric], dict(read_tensors(path)[1])

    def _in_its_framework(self, adapter: Adapter, rounds: int) -> tuple[float, Model]:
        output = self._folder / f"{adapter.code_name}.npz"
        data = [str(self._files[site]) for site in SITES]
        if adapter.kind == "flower":
            words = ["adapters_flower.py", str(adapter.path), str(rounds), str(output), *data]
        else:
            first = self._folder / f"{adapter.name}-first.npz"
            np.savez(first, **adapter.first_model())
            given = [arguments_at(adapter, place, len(SITES), Path(path)) for place, path in enumerate(data)]
            words = ["adapters_nvflare.py", str(adapter.path), adapter.framework, str(rounds), str(first), str(output)]
            words += given
        command = [str(self._pythons[adapter.kind]), str(HERE / words[0]), *words[1:]]
        scratch_of_it = self._folder / f"{adapter.code_name}-own"
        scratch_of_it.mkdir()
        quiet = {"FLWR_TELEMETRY_ENABLED": "0"}
        done = subprocess.run(
            command, cwd=scratch_of_it, env=os.environ | quiet, capture_output=True, text=True, timeout=_ENGINE_S
        )
        if done.returncode:
            raise RuntimeError(f"{adapter.name} under {adapter.kind}: {done.stdout[-2000:]}{done.stderr[-4000:]}")
        with np.load(output) as held:
            return json.loads(done.stdout.splitlines()[-1])[adapter.metric], dict(held)


def _distance(one: Model, other: Model) -> float:
    """The largest difference of two models' floats, relative to the largest of them. Integers, such as batch norm's
    counter, are averaged by others and are never by Hanse."""
    if {name: array.shape for name, array in one.items()} != {name: array.shape for name, array in other.items()}:
        raise RuntimeError(f"{sorted(one)} and {sorted(other)}: other entries or shapes")
    floats = [(array.astype(np.float64), other[name]) for name, array in one.items() if array.dtype.kind == "f"]
    largest = max(float(np.abs(array).max()) for array, _ in floats) or 1.0
    return max(float(np.abs(left - right).max()) for left, right in floats) / largest


async def bench(adapters: Sequence[Adapter], rounds: int) -> tuple[list[Compared], float]:
    """All of them, and the overhead."""
    pythons = {kind: interpreter(kind, more=MORE) for kind in ("flower", "nvflare")}
    found = []
    with scratch("adapters") as name:
        folder = Path(name)
        files = write_shares(folder, SITES)
        code = lay_out(folder / "code", adapters)
        async with Deployment(folder / "hub", "adapters", {}, SCHEMA, nursery=True) as deployment:
            for place, site in enumerate(SITES):
                policy = json.loads(deployment.policy_file().read_text())
                path = folder / f"{site}.json"
                own = site_code(adapters, pythons, place, len(SITES))
                path.write_text(json.dumps({**policy, "site_code": own}))
                child = await deployment.add_site(site, SiteFiles(files[site]))
                child.spec = replace(child.spec, argv=[*child.spec.argv, "--policy", str(path), "--code", str(code)])
            made = Bench(folder, deployment, files, pythons)
            for adapter in adapters:
                found.append(await made.compare(adapter, rounds))
                print(found[-1], flush=True)
            longest = [await made.overhead(each, 20) for each in adapters if each.name == "logistic_numpy"]
    return found, max(longest, default=0.0)


def main() -> None:
    """Print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="end in one line of JSON")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("only", nargs="*", help="names of apps and scripts; none: all of them")
    given = parser.parse_args()
    adapters = [each for each in (*APPS, *SCRIPTS) if not given.only or each.name in given.only]
    found, overhead = asyncio.run(bench(adapters, given.rounds))
    same = [each.adapter.kind for each in found if each.same]
    print(f"a round takes {overhead:.3f} s longer than with the built-in trainer")
    if given.json:
        counts = {"flower_apps": same.count("flower"), "nvflare_scripts": same.count("nvflare")}
        print(json.dumps({**counts, "overhead_s_per_round": round(overhead, 3)}))
    sys.exit(len(same) < len(found))


if __name__ == "__main__":
    main()
