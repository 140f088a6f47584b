"""Flower apps and NVFlare scripts as their authors wrote them, at three sites of a hub, masked and plain: one model,
that of a loop over the clients in Flower's own interpreter. Under Flower and NVFlare themselves: `make
bench-adapters`."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

import foreign_nursery
from adapters_at_sites import APPS, SCHEMA, SCRIPTS, Adapter, lay_out, site_code, write_shares
from e2e.test_role_views import Seen, tapped
from foreign_interpreters import PINS, TORCH, has_torch, interpreter_or_skip
from hanse.embedded.deployment import Deployment, SiteFiles
from hanse.hub import Run
from hanse_datapod.worker.foreign.source import source_at
from hanse_fabric.tensors.file import read_tensors
from hanse_schemas.secure_aggregation import LARGEST_WEIGHT
from views import find_secret, view_of

SITES = ["east", "north", "south"]
ROUNDS, EPOCHS = 2, 4
EVERYTHING = (*APPS, *SCRIPTS)
OF_TORCH = ("flower_fedprox_torch", "nvflare_decorated_torch")
"""An app and a script for the suite of every day, where the interpreters have PyTorch; `make test-large` has all."""
OTHERS = [
    each for each in EVERYTHING
    if each.code_name in OF_TORCH or (not each.torch and each.code_name != "flower_logistic_numpy")
]  # fmt: skip
CODE = Path(__file__).parents[2] / "examples" / "adapters" / "flower" / "logistic_numpy.py"
DIGEST = hashlib.sha256(CODE.read_bytes()).hexdigest()
LEAST = {
    "flower_ridge_client": 0.3, "flower_sklearn_logreg": 0.85, "flower_softmax_mods": 0.85,
    "flower_tabular_pandas": 0.7, "flower_wine_start_client": 0.85, "nvflare_logistic_numpy": 0.8,
    "nvflare_sgd_pandas": 0.7, "flower_logistic_numpy": 0.8, "flower_torch_digits": 0.7, "flower_torch_cnn": 0.7,
    "flower_fedprox_torch": 0.8, "flower_personal_head": 0.3, "nvflare_diff_torch": 0.7, "nvflare_cnn_tracking": 0.5,
    "nvflare_decorated_torch": 0.9,
}  # fmt: skip
SLOW = {"nvflare_cnn_tracking": 6}
"""Rounds until a model is better than chance, where two are too few."""
AVERAGED = """
import json, sys
import logistic_numpy as app
sites, rounds, epochs = map(int, sys.argv[1:])
clients = [app.FlowerClient(app.load_data(site, sites)) for site in range(sites)]
model, first = clients[0].get_parameters({}), None
for _ in range(rounds):
    made = [client.fit(model, {"local_epochs": epochs})[:2] for client in clients]
    first = first or [[array.tolist() for array in arrays] for arrays, _ in made]
    total = sum(examples for _, examples in made)
    model = [sum(arrays[n] * examples for arrays, examples in made) / total for n in range(2)]
tested = [client.evaluate(model, {}) for client in clients]
accuracy = sum(metrics["accuracy"] * n for _, n, metrics in tested) / sum(n for _, n, _ in tested)
model = [array.tolist() for array in model]
print(json.dumps({"first": first, "model": model, "accuracy": accuracy, "examples": total}))
"""

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@dataclass
class Scene:
    """A deployment whose sites have the app, all that was said on its bus, and what Flower's interpreter made."""

    deployment: Deployment
    seen: Seen
    expected: dict[str, Any]

    async def run(self, **more: Any) -> tuple[Run, dict[str, np.ndarray]]:
        """A run to its end, and its model."""
        job = {
            "rounds": ROUNDS,
            "participants": {"minimum": len(SITES), "deadline": 120},
            "code": {"name": "flower_logistic_numpy", "digest": DIGEST, "kind": "flower"},
            "train": {"local_epochs": EPOCHS},
        }
        return await self.done({**job, **more})

    async def done(self, job: dict[str, Any]) -> tuple[Run, dict[str, np.ndarray]]:
        """A job's run to its end, and its model."""
        run = await asyncio.to_thread(self.deployment.project.run, job)
        await asyncio.to_thread(run.wait)
        assert run.state == "completed", run.view.reason
        return run, read_tensors(await asyncio.to_thread(run.model.download, self.deployment.folder / run.id))[1]

    def changes_found(self) -> set[str]:
        """The sites whose change of the first round stands in what was said on the bus, or in a file of the hub."""
        left = [data for _, data in self.seen.messages] + list(view_of(self.deployment.folder / "hub"))
        changes = {site: np.array(arrays[0]) for site, arrays in zip(SITES, self.expected["first"], strict=True)}
        return {finding.secret for finding in find_secret(left, changes)}

    def left(self, run: Run, site: str) -> list[str]:
        """By the site's own log: what of a run has left it."""
        lines = (self.deployment.home(site) / "outbox.jsonl").read_text().splitlines()
        return [entry["what"] for entry in map(json.loads, lines) if run.id in entry["to"]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    """One site starts Flower's interpreter itself, so that apps are in its sandbox; the others are forked. Where all
    code is tried, all are started (`make test-large`)."""
    pythons = {
        kind: await asyncio.to_thread(interpreter_or_skip, kind, more=("pandas",)) for kind in ("flower", "nvflare")
    }
    arguments = [str(number) for number in (len(SITES), ROUNDS, EPOCHS)]
    made = await asyncio.to_thread(
        subprocess.run,
        [pythons["flower"], "-c", AVERAGED, *arguments],
        cwd=CODE.parent,
        capture_output=True,
        check=True,
    )
    folder, seen = tmp_path_factory.mktemp("foreign"), Seen()
    files, code = write_shares(folder, SITES), lay_out(folder / "code", EVERYTHING)
    async with AsyncExitStack() as stack:
        forked = pythons
        if not any(item.get_closest_marker("large") for item in request.session.items):
            forked = {
                kind: await asyncio.to_thread(stack.enter_context, _forking(folder / kind, kind, python))
                for kind, python in pythons.items()
            }
        deployment = await stack.enter_async_context(Deployment(folder, "foreign", {}, SCHEMA, nursery=True))
        await stack.enter_async_context(tapped(folder, seen))
        for place, site in enumerate(SITES):
            policy = json.loads(deployment.policy_file().read_text())
            path = folder / f"{site}.json"
            started = {"flower": pythons["flower"]} if site == SITES[0] else {}
            own = site_code(EVERYTHING, forked | started, place, len(SITES))
            path.write_text(json.dumps({**policy, "site_code": own}))
            child = await deployment.add_site(site, SiteFiles(files[site]))
            child.spec = replace(child.spec, argv=[*child.spec.argv, "--policy", str(path), "--code", str(code)])
        yield Scene(deployment, seen, json.loads(made.stdout))


def _forking(folder: Path, kind: str, python: Path) -> AbstractContextManager[Path]:
    """An interpreter that has loaded what the code of its kind imports."""
    there = [each for each in OTHERS if each.kind == kind and (not each.torch or has_torch(kind))]
    imports = {name for each in there for name in source_at(each.path).imports()}
    return foreign_nursery.forking(folder, kind, python, sorted(imports))


async def test_a_flower_app_trains_masked_what_it_trains_plain_and_in_flowers_interpreter(scene: Scene) -> None:
    masked, masked_model = await scene.run(secure_aggregation={"mode": "compensator"})
    assert scene.changes_found() == set()
    fraction = scene.seen.fraction()
    plain, plain_model = await scene.run()
    assert scene.changes_found() == set(SITES), "the control: without masks the same search finds each site's change"

    # What rounding moves the mean of a round by at most, as docs/privacy.md has it.
    examples = scene.expected["examples"]
    error = ROUNDS * len(SITES) * (2.0 ** -(fraction + 1) + 8 * 2.0**-51) * LARGEST_WEIGHT / examples
    assert error < 1e-8
    for number, array in enumerate(scene.expected["model"]):
        np.testing.assert_allclose(plain_model[str(number)], array, rtol=1e-12)
        np.testing.assert_allclose(masked_model[str(number)], plain_model[str(number)], rtol=0, atol=error)
    for run in (masked, plain):
        assert run.view.metrics["accuracy"] == pytest.approx(scene.expected["accuracy"], abs=1e-6)
        lineage = run.model.view.lineage
        assert (lineage.code_digests, lineage.participants) == ((DIGEST,), tuple(SITES))

    # One site alone sends the first model, which the app makes of zeros.
    for run, updates, masks in ((masked, 1, ROUNDS), (plain, len(SITES) * ROUNDS + 1, 0)):
        left = [scene.left(run, site) for site in SITES]
        assert sum(each.count("update") for each in left) == updates
        assert [each.count("masked-update") for each in left] == [masks] * len(SITES)
        assert {what for each in left for what in each} <= {"masked-update", "progress", "result", "tally", "update"}


@pytest.mark.parametrize("adapter", OTHERS, ids=lambda each: each.code_name)
async def test_code_as_its_authors_write_it_trains_masked_what_it_trains_plain(scene: Scene, adapter: Adapter) -> None:
    """Of low-level clients, scripts that start one, apps with mods, scikit-learn's models, tables with texts, and
    PyTorch."""
    if adapter.torch and not has_torch(adapter.kind):
        pytest.skip(f"the interpreter with {' '.join(PINS[adapter.kind])} has no PyTorch; make test-large adds it")
    await _trains_masked_what_it_trains_plain(scene, adapter)


@pytest.mark.large
@pytest.mark.parametrize("adapter", EVERYTHING, ids=lambda each: each.code_name)
async def test_each_of_the_fifteen_trains_masked_what_it_trains_plain(scene: Scene, adapter: Adapter) -> None:
    await asyncio.to_thread(interpreter_or_skip, adapter.kind, more=(TORCH, "pandas"))
    await _trains_masked_what_it_trains_plain(scene, adapter)


async def test_the_page_says_how_many_there_are() -> None:
    page = (Path(__file__).parents[2] / "docs" / "bring-your-code.md").read_text()
    assert (len(APPS), len(SCRIPTS)) == (10, 5)
    assert "ten Flower apps and five NVFlare scripts" in page
    assert set(LEAST) == {each.code_name for each in EVERYTHING}


async def _trains_masked_what_it_trains_plain(scene: Scene, adapter: Adapter) -> None:
    job = adapter.job(rounds := SLOW.get(adapter.code_name, 2), len(SITES)) | {"evaluate": {"every": rounds}}
    if adapter.first:
        job["initial_model"] = await asyncio.to_thread(scene.deployment.project.upload_model, adapter.first_model())
    plain, plain_model = await scene.done(job)
    masked, masked_model = await scene.done({**job, "secure_aggregation": {"mode": "compensator"}})
    assert plain.view.metrics[adapter.metric] > LEAST[adapter.code_name], "better than without training"
    assert masked.view.metrics[adapter.metric] == pytest.approx(plain.view.metrics[adapter.metric], abs=1e-3)
    for name, array in plain_model.items():
        np.testing.assert_allclose(masked_model[name], array, rtol=0, atol=1e-6)
