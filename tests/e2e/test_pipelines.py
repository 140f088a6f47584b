"""The examples of `hanse.join` with a policy, each at three sites of a hub under a compensator's masks: they learn, and
nothing of one site leaves unmasked. docs/own-pipeline.md names them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.deployed import DeployedHub, completed, project_url
from foreign_interpreters import beside_ours_or_skip
from hanse.hub import Hub, Project
from hanse_fabric.tensors.file import read_tensors

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"
AT_ONCE = Path(__file__).parents[1] / "pipelines_at_sites.py"
SITES = ["east", "north", "south"]
MASKED = {"secure_aggregation": {"mode": "compensator"}}
JOB = {
    "code": {"kind": "own"}, "participants": {"minimum": 3, "deadline": 120}, "train": {"epochs": 2},
    "evaluate": {"every": 1}, "seed": 1,
}  # fmt: skip
SKLEARN = "sklearn_digits"
LEAST = {"lightning_digits": ("accuracy", 0.7), "lora_text": ("accuracy", 0.95), "monai_segmentation": ("dice", 0.7)}

pytestmark = pytest.mark.timeout(300)


@contextmanager
def process(*command: str, log: Path, packages: Path | None = None) -> Iterator[None]:
    """A process while inside; it must not have ended by itself."""
    with log.open("w") as said:
        beside = {} if packages is None else {"PYTHONPATH": str(packages)}
        running = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, env=os.environ | beside)
        try:
            yield
            assert running.poll() is None, log.read_text()[-3000:]
        finally:
            running.send_signal(signal.SIGKILL)
            running.wait(30)


def left(home: Path) -> list[dict]:
    """What left a site, by its own log."""
    return [json.loads(line) for line in (home / "outbox.jsonl").read_text().splitlines()]


def require_masked(homes: list[Path], rounds: int) -> None:
    """Of training and evaluation nothing left but masked; one site sent the first model, which is of no data."""
    logs = [left(home) for home in homes]
    assert sum(entry["what"] == "update" for log in logs for entry in log) == 1
    for log in logs:
        assert sum(entry["what"] == "masked-update" for entry in log) == rounds
        assert not [entry for entry in log if entry["what"] == "result" and "metrics" in (entry["shape"] or "")]


@dataclass(frozen=True)
class Joined:
    """Projects by example, and the folder in which each site's home and each example's policy are.

    Attributes:
        missing: why no example of torch is there; empty where they are.
    """

    projects: dict[str, Project]
    folder: Path
    missing: str


@pytest.fixture(scope="module")
def joined(hub: DeployedHub, client: Hub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Joined]:
    """The sites of each example are at a project of its own, all from one process: they share what they load. One of
    scikit-learn's comes by itself."""
    folder, packages, missing = tmp_path_factory.mktemp("pipelines"), None, ""
    try:
        packages = beside_ours_or_skip()
    except pytest.skip.Exception as skipped:
        missing = str(skipped)
    sites = {SKLEARN: SITES[:2]} | ({} if missing else dict.fromkeys(LEAST, SITES))
    projects = {
        example: client.projects.create(f"pipeline-{example.replace('_', '-')}", schema={"kind": "open"})
        for example in sites
    }
    named = []
    for example, names in sites.items():
        masking = {"compensator": hub.hub.compensator_key, "required": example != SKLEARN}
        (folder / f"{example}.yaml").write_text(json.dumps({"masking": masking}))
        named += [f"{EXAMPLES / example}.py:{name}={projects[example].invite(name)}" for name in names]
    command = [sys.executable, str(AT_ONCE), hub.hub.url, str(folder), str(len(SITES)), *named]
    with process(*command, log=folder / "sites.log", packages=packages):
        yield Joined(projects, folder, missing)


def test_scikit_learn_trains_masked_and_plain_to_one_model_from_the_command_line(
    joined: Joined, tmp_path: Path
) -> None:
    project, folder, last = joined.projects[SKLEARN], joined.folder, SITES[2]
    alone = [
        sys.executable, str(EXAMPLES / f"{SKLEARN}.py"), "--hub", project_url(project), "--token",
        project.invite(last), "--home", str(folder / SKLEARN / last), "--part", "2", "--policy",
        str(folder / f"{SKLEARN}.yaml"),
    ]  # fmt: skip
    with process(*alone, log=tmp_path / "alone.log"):
        masked = completed(project.run({**JOB, **MASKED, "rounds": 3}))
        plain = completed(project.run({**JOB, "rounds": 3}))
        private = completed(
            project.run(
                {**JOB, "rounds": 1, "weighting": "uniform", "evaluate": {"every": 0},
                 "privacy": {"placement": "local", "mechanism": "gaussian", "epsilon": 50.0, "clip": 1.0}}
            )
        )  # fmt: skip
    assert list(masked.metrics["accuracy"])[-1] > 0.85
    arrays = [read_tensors(run.model.download(tmp_path / run.id))[1] for run in (masked, plain)]
    assert {name: array.shape for name, array in arrays[0].items()} == {"0": (10, 64), "1": (10,)}
    for name, array in arrays[0].items():
        assert abs(array - arrays[1][name]).max() < 1e-6
    assert private.state == "completed"
    for name in SITES:
        spent = (folder / SKLEARN / name / "privacy.jsonl").read_text()
        assert spent.count("gaussian, local") == 1, "the ledger was charged for the private round, once"


@pytest.mark.parametrize("example", LEAST)
def test_pipelines_of_torch_train_masked(example: str, joined: Joined, tmp_path: Path) -> None:
    if joined.missing:
        pytest.skip(joined.missing)
    metric, least = LEAST[example]
    masks = {"mode": "compensator", "metrics": [metric]}
    run = completed(joined.projects[example].run({**JOB, "secure_aggregation": masks, "rounds": 3}))
    assert list(run.metrics[metric])[-1] > least
    require_masked([joined.folder / example / name for name in SITES], rounds=3)
    if example == "lora_text":
        names = set(read_tensors(run.model.download(tmp_path / "adapters"))[1])
        assert names
        assert all("lora_" in name or "classifier" in name for name in names), "the base model never leaves"
