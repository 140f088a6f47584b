"""Packages from outside of the repository, built and installed for real, train by job file on a hub of real processes.

A strategy, a workflow, an algorithm and a codec are as `hanse new` writes them; another package has an algorithm and a
codec that the sites do not allow, a strategy that raises, and workflows that use a key for two questions.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import pytest_asyncio

import hanse.new
from e2e.digits_runs import SCHEMA, SITES, share_digits
from e2e.jobs_in_memory import digest_in_memory
from e2e.killed import kill
from hanse.embedded.deployment import Deployment
from hanse.embedded.hub import EmbeddedHub
from hanse.embedded.nursery import DATAPODS, SERVICES
from hanse.hub import Run
from hanse_fabric.errors import HanseError
from hanse_fabric.tensors.file import read_tensors
from hanse_workflows.fingerprint import VERSION

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

WILD = """
import os
from typing import ClassVar

from hanse_learning.codecs.config import CodecConfig
from hanse_learning.config import AlgorithmConfig
from hanse_learning.server.config import ReductionConfig
from hanse_workflows import Workflow, first_model, gather
from hanse_workflows.round_asks import training


class Raising(ReductionConfig):
    def combine(self, updates, weights, out):
        out[...] = 1 / 0


class Unapproved(AlgorithmConfig):
    def train(self, session):
        raise SystemExit("no site may run this")


class Packed(CodecConfig):
    role: ClassVar = "pack"

    def pack(self, data):
        raise SystemExit("no site may run this")

    def unpack(self, data, most):
        raise SystemExit("no site may run this")


async def trains_twice_under_one_key(run):
    model = await first_model(run)
    there = await run.participants("r1-participants")
    for round in (1, 2):
        await gather(run, "r1-train", training(run.job, there, round, model))


async def asks_what_process_it_is(run):
    async def decide():
        return {"decided": True}

    await run.once("r1-decide", {"process": os.getpid()}, decide)
    model = await first_model(run)
    there = await run.participants("r1-participants")
    for round in range(1, run.job.rounds + 1):
        await gather(run, f"r{round}-train", training(run.job, there, round, model))
        run.note("round-finished", f"r{round}", round=round)


careless, forgetful = Workflow(trains_twice_under_one_key), Workflow(asks_what_process_it_is)
"""
OFFERED = """
[project.entry-points."hanse.algorithms"]
unapproved = "wild:Unapproved"

[project.entry-points."hanse.codecs"]
packed = "wild:Packed"

[project.entry-points."hanse.workflows"]
careless = "wild:careless"
forgetful = "wild:forgetful"
"""
PACKAGES = {
    "winsorized": "strategy", "nesterov": "server-optimizer", "damped": "algorithm", "multiples": "codec",
    "everybody": "workflow", "wild": "strategy",
}  # fmt: skip
"""What `hanse new` writes, by name."""


def job(strategy: dict[str, Any] | None = None, algorithm: Any = "fedavg", rounds: int = 1) -> dict[str, Any]:
    return {
        "rounds": rounds,
        "participants": {"minimum": 3, "deadline": 120, "patience": 60, "retries": 0},
        "model": {"name": "logistic"},
        "train": {"algorithm": algorithm, "optimizer": {"name": "sgd", "lr": 0.1}, "batch_size": 64},
        "strategy": {"reduction": strategy} if strategy else {},
        "checkpoint_every": 0,
        "seed": 5,
    }


def pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "-q", *arguments], check=True, timeout=120)


@pytest.fixture(scope="module")
def site_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which they are built and installed, all at once."""
    folder = tmp_path_factory.mktemp("packages")
    for name, kind in PACKAGES.items():
        hanse.new.write(kind, name, folder)
    (folder / "wild" / "src" / "wild" / "__init__.py").write_text(WILD)
    toml = folder / "wild" / "pyproject.toml"
    toml.write_text(toml.read_text().replace("wild:Wild", "wild:Raising") + OFFERED)
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--target", str(folder / "site"))
    pip("install", *options, *(str(folder / name) for name in PACKAGES))
    return folder / "site"


@pytest.fixture(scope="module")
def digests(site_packages: Path) -> dict[str, str]:
    return digests_in(site_packages)


def digests_in(site_packages: Path) -> dict[str, str]:
    """What `python -m hanse_fabric.plugins` says, by kind and name."""
    done = subprocess.run(
        [sys.executable, "-m", "hanse_fabric.plugins"], env={"PYTHONPATH": str(site_packages)},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    words = (line.split() for line in done.stdout.splitlines())
    return {f"{kind} {name}": rest[-1] for kind, name, *rest in words if len(rest[-1]) == 64}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def deployment(
    tmp_path_factory: pytest.TempPathFactory, site_packages: Path, digests: dict[str, str]
) -> AsyncIterator[Deployment]:
    folder = tmp_path_factory.mktemp("plugins")
    files = share_digits(folder / "data")
    policy = {
        "plugins": {"algorithms": [digests["algorithm damped"]], "codecs": [digests["codec multiples"]]},
        "workflows": ["federated_averaging", "everybody", "careless", "forgetful"],
    }  # fmt: skip
    settings = {"PYTHONPATH": str(site_packages)}
    with pytest.MonkeyPatch.context() as patch:  # nurseries with that path, not the session's
        for owner, name, kind in ((EmbeddedHub, "services_from", SERVICES), (Deployment, "sites_from", DATAPODS)):
            patch.setattr(owner, name, replace(kind, environment={**kind.environment, **settings}))
        async with Deployment(
            folder, "digits", files, SCHEMA, settings=settings, policy=policy, nursery=True
        ) as deployment:
            yield deployment


async def ended(deployment: Deployment, description: dict[str, Any]) -> Run:
    run = await asyncio.to_thread(deployment.project.run, description)
    await asyncio.to_thread(run.wait)
    return run


async def model_of(run: Run, folder: Path) -> dict[str, np.ndarray]:
    assert run.state == "completed", run.view.reason
    path = await asyncio.to_thread(run.model.download, folder / f"{run.view.run}.safetensors")
    return read_tensors(path)[1]


async def test_sites_and_services_are_forked_in_nurseries_of_their_hub(deployment: Deployment) -> None:
    """As those of `hanse demo` are. Of a nursery that does not begin nobody would know else: they are programs then."""
    site = deployment.datapods[SITES[0]]
    await site.wait_ready(60)
    pids = deployment.hub.supervisor.pids()
    for name, kind in (("coordinator", SERVICES), (site.spec.name, DATAPODS)):
        parent = psutil.Process(pids[name]).parent()
        assert parent is not None
        assert parent.cmdline()[1:] == ["-m", *kind.program], name


async def test_a_strategy_and_an_algorithm_from_packages_train_by_job_file_and_lineage_has_their_digests(
    deployment: Deployment, digests: dict[str, str], tmp_path: Path
) -> None:
    run = await ended(deployment, job({"name": "winsorized", "cut": 1}, {"name": "damped", "share": 1.0}))
    made = await model_of(run, tmp_path)
    # The control: of three updates, the winsorized mean with cut 1 is the median, and the whole share plain training.
    plain = await ended(deployment, job({"name": "median"}))
    expected = await model_of(plain, tmp_path)
    for name, array in expected.items():
        np.testing.assert_allclose(made[name], array, rtol=1e-5, atol=1e-6)
    half = await model_of(await ended(deployment, job({"name": "winsorized"}, "damped")), tmp_path)
    assert any(np.abs(half[name] - made[name]).max() > 1e-3 for name in made)
    named = ("strategy winsorized", "algorithm damped")
    assert run.model.view.lineage.plugins == {name: digests[name] for name in named}
    assert plain.model.view.lineage.plugins is None


async def test_a_server_optimizer_from_a_package_moves_the_model_and_lineage_has_its_digest(
    deployment: Deployment, digests: dict[str, str], tmp_path: Path
) -> None:
    def by(**optimizer: Any) -> dict[str, Any]:
        return job() | {"strategy": {"optimizer": optimizer}}

    run = await ended(deployment, by(name="nesterov", momentum=0.0))
    plain, own = await model_of(await ended(deployment, job()), tmp_path), await model_of(run, tmp_path)
    for name, array in plain.items():  # without momentum it is the plain mean
        np.testing.assert_allclose(own[name], array, rtol=1e-6, atol=1e-7)
    assert run.model.view.lineage.plugins == {"server-optimizer nesterov": digests["server-optimizer nesterov"]}
    moved = await model_of(await ended(deployment, by(name="nesterov")), tmp_path)
    assert any(np.abs(moved[name] - own[name]).max() > 1e-3 for name in own)
    with pytest.raises(HanseError, match=r"'nesterof' is no server-optimizer that is installed here; known are "):
        await asyncio.to_thread(deployment.project.run, by(name="nesterof"))


async def test_a_workflow_from_a_package_ends_in_the_bits_of_averaging_when_all_take_part(
    deployment: Deployment, digests: dict[str, str]
) -> None:
    run = await ended(deployment, job(rounds=2) | {"workflow": "everybody"})
    assert run.state == "completed", run.view.reason
    assert run.view.model_digest == (await ended(deployment, job(rounds=2))).view.model_digest
    assert run.model.view.lineage.plugins == {"workflow everybody": digests["workflow everybody"]}
    assert (await ended(deployment, job(rounds=2) | {"seed": 6, "workflow": "everybody"})).view.model_digest != (
        run.view.model_digest
    )
    with pytest.raises(HanseError, match="absent: everybody masks nothing"):
        await asyncio.to_thread(
            deployment.project.run,
            job() | {"workflow": "everybody", "weighting": "uniform", "secure_aggregation": {"mode": "pairwise"}},
        )


async def test_a_codec_from_a_package_encodes_what_sites_send_to_the_same_bits_as_in_memory(
    deployment: Deployment, site_packages: Path, digests: dict[str, str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    step = 0.01
    one = job()
    coded = one | {"codec": {"up": [{"name": "multiples", "step": step}]}}
    run = await ended(deployment, coded)
    plain, made = await model_of(await ended(deployment, one), tmp_path), await model_of(run, tmp_path)
    away = np.concatenate([np.abs(made[name] - plain[name]).ravel() for name in plain])
    assert step / 10 < away.max() <= step / 2 * 1.001, "each site's values are rounded to multiples, by half at most"
    assert run.model.view.lineage.plugins == {"codec multiples": digests["codec multiples"]}
    monkeypatch.syspath_prepend(site_packages)
    try:
        files = {name: deployment.folder / "data" / name / "train.npz" for name in SITES}
        found = await asyncio.to_thread(digest_in_memory, coded, SCHEMA, files)
    finally:
        sys.modules.pop("multiples", None)
    assert found == run.view.model_digest
    with pytest.raises(HanseError, match=r"'multipels' is no codec that is installed here; known are "):
        await asyncio.to_thread(deployment.project.run, one | {"codec": {"up": [{"name": "multipels"}]}})


async def test_a_codec_that_the_sites_policy_does_not_name_is_refused_by_the_sites_and_says_how_it_is_allowed(
    deployment: Deployment, digests: dict[str, str]
) -> None:
    run = await ended(deployment, job() | {"codec": {"up": [{"name": "packed"}]}})
    assert run.state == "failed"
    assert "plugins.codecs: codec packed of wild 0.1.0 with digest " in run.view.reason
    assert digests["codec packed"] in run.view.reason


async def test_a_workflow_that_uses_a_key_twice_ends_its_run_with_both_fingerprints(deployment: Deployment) -> None:
    run = await ended(deployment, job() | {"workflow": "careless"})
    assert run.state == "failed"
    assert run.view.reason.startswith("step-changed: step r1-train: the workflow has used this key already")
    assert len(fingerprints_in(run.view.reason)) == 2


async def test_a_workflow_that_asks_otherwise_at_its_next_pass_ends_its_run_with_both_fingerprints(
    deployment: Deployment,
) -> None:
    run = await asyncio.to_thread(deployment.project.run, job() | {"workflow": "forgetful", "rounds": 1000})
    await asyncio.to_thread(lambda: next(event for event in run.watch() if event.kind == "round-finished"))
    await kill(deployment, "coordinator")
    await asyncio.to_thread(run.wait)
    assert run.state == "failed"
    assert run.view.reason.startswith("step-changed: step r1-decide: the run's journal has it with fingerprint")
    assert len(fingerprints_in(run.view.reason)) == 2


def fingerprints_in(reason: str) -> set[str]:
    return {word.strip(",") for word in reason.split() if word.startswith(f"{VERSION}.")}


async def test_an_algorithm_that_the_sites_policy_does_not_name_is_refused_by_the_sites_and_says_how_it_is_allowed(
    deployment: Deployment, digests: dict[str, str]
) -> None:
    run = await ended(deployment, job(algorithm="unapproved"))
    assert run.state == "failed"
    assert "plugins.algorithms: algorithm unapproved of wild 0.1.0 with digest " in run.view.reason
    assert digests["algorithm unapproved"] in run.view.reason


async def test_a_strategy_that_raises_ends_the_run_naming_its_package_and_line(deployment: Deployment) -> None:
    line = WILD.splitlines().index("        out[...] = 1 / 0") + 1
    run = await ended(deployment, job({"name": "wild"}))
    assert run.state == "failed"
    assert f"strategy wild of wild 0.1.0 raised ZeroDivisionError in line {line} of __init__.py" in run.view.reason


async def test_a_plugin_that_is_not_installed_is_refused_at_submission_with_those_that_are(
    deployment: Deployment,
) -> None:
    with pytest.raises(HanseError, match=r"'mode' is no strategy that is installed here; known are .*wild, winsorized"):
        await asyncio.to_thread(deployment.project.run, job({"name": "mode"}))
    with pytest.raises(HanseError, match=r"reduction\.cut: Input should be greater than or equal to 0"):
        await asyncio.to_thread(deployment.project.run, job({"name": "winsorized", "cut": -1}))


async def test_an_aggregator_with_other_code_refuses_the_reduction_and_names_both_digests(
    deployment: Deployment, site_packages: Path, digests: dict[str, str], tmp_path: Path
) -> None:
    shutil.copytree(site_packages, tmp_path / "other")
    with (tmp_path / "other" / "winsorized" / "__init__.py").open("a") as module:
        module.write("# another release\n")
    other = digests_in(tmp_path / "other")["strategy winsorized"]
    supervisor = deployment.hub.supervisor
    aggregator = next(child for child, _ in supervisor._children if child.spec.name == "aggregator")
    aggregator.spec = replace(
        aggregator.spec, environment={**aggregator.spec.environment, "PYTHONPATH": str(tmp_path / "other")}
    )
    os.kill(supervisor.pids()["aggregator"], signal.SIGKILL)
    run = await ended(deployment, job({"name": "winsorized"}))
    assert run.state == "failed"
    assert f"this aggregator has digest {other}, the coordinator has digest {digests['strategy winsorized']}" in (
        run.view.reason
    )
