"""A sweep over real sites: killed in the middle it goes on, and nothing is submitted twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from e2e.deployed import DeployedHub
from forked_commands import Commands
from hanse.hub import Hub, Project
from hanse_fabric.errors import HanseError

JOB = {
    "rounds": 2, "model": {"name": "logistic"}, "participants": {"minimum": 2, "patience": 60},
    "train": {"epochs": 1, "batch_size": 16, "optimizer": {"name": "sgd", "lr": 0.1}},
    "stop": {"metric": "loss"}, "keep": "best",
}  # fmt: skip
RATES = "train.optimizer.lr=1e-5,0.01,0.1,1"
PRIVATE = {"placement": "local", "mechanism": "gaussian", "clip": 1.0, "epsilon": 4.0, "delta": 1e-5}


def tables(folder: Path) -> dict[str, Path]:
    """Two sites, whose people are told apart by one column."""
    source, found = np.random.default_rng(5), {}
    for site in ("north", "south"):
        x = source.normal(size=(120, 3))
        frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(ill=(x[:, 0] > 0).astype(int))
        found[site] = folder / f"{site}.csv"
        frame.to_csv(found[site], index=False)
    return found


@pytest.mark.timeout(300)
def test_a_sweep_goes_on_where_it_was_killed_and_says_what_it_costs(
    hub: DeployedHub, client: Hub, tmp_path: Path, commands: Commands
) -> None:
    schema = {"kind": "tabular", "features": [{"name": name} for name in "abc"], "target": "ill", "classes": 2}
    job = tmp_path / "job.yaml"
    job.write_text(json.dumps(JOB))
    project = client.projects.create("rates", schema=schema)
    for site, data in tables(tmp_path).items():
        hub.start_datapod(project, site, home=tmp_path / site, data=data)
    environment = {**os.environ, "HANSE_URL": hub.hub.url, "HANSE_API_KEY": hub.hub.api_key, "COLUMNS": "200"}
    words = ["hanse", "run", "sweep", "rates", str(job), "--over", RATES]

    def typed(*more: str) -> subprocess.CompletedProcess[str]:
        return commands.run([*words, *more], cwd=tmp_path, env=environment)

    broken = subprocess.Popen(
        [sys.executable, "-m", *words], env=environment, cwd=tmp_path, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert broken.stdout is not None
    for line in broken.stdout:
        if "is completed" in line:
            break
    broken.send_signal(signal.SIGKILL)
    broken.wait(30)

    before = {run.id for run in project.runs()}
    assert 1 <= len(before) < 4
    done = typed("--at-once", "2", "--plot", "rates.svg")
    told = done.stdout
    assert f"4 runs, {len(before)} of them there already" in told, done.stderr
    assert "asking.runs" in told
    runs = project.runs()
    assert len(runs) == 4
    assert before < {run.id for run in runs}
    assert len({tag for run in runs for tag in run.view.tags}) == 5  # one of the sweep, and one of each run
    assert (tmp_path / "rates.svg").read_text().count("<!-- lr=") == 4
    [line] = [line for line in told.splitlines() if "hanse run compare" in line]
    compared = project.compare(*line.split()[-4:])
    assert compared.differences == {"train.optimizer.lr": (1e-5, 0.01, 0.1, 1)}
    body = json.loads(typed("--json").stdout)
    assert len(project.runs()) == 4
    losses = {each["run"]: each["value"] for each in body["runs"]}
    assert body["metric"] == "loss"
    assert body["best"] == min(losses, key=losses.__getitem__)
    assert losses[body["best"]] < 0.5 < losses[body["runs"][0]["run"]]
    refusals(project)


def refusals(project: Project) -> None:
    """What costs too much, or what the hub refuses, begins with no run."""
    private: Any = JOB | {"privacy": PRIVATE}
    over = {"train.optimizer.lr": [0.1, 0.2, 0.3]}
    foreseen = project.foresee(private, over)
    assert foreseen.epsilon == pytest.approx(12.0)
    assert "cost each site epsilon 12" in foreseen.said
    for epsilon in (None, 11.9):
        with pytest.raises(HanseError, match="expected 12 at least, which the sweep's 3 new runs cost"):
            project.sweep(private, over, epsilon=epsilon)
    with pytest.raises(HanseError, match=r"train.optimizer.name=nadam: .*nadam"):
        project.sweep(JOB, {"train.optimizer.name": ["adam", "nadam"]})
    with pytest.raises(HanseError, match="at_once"):
        project.sweep(JOB, over, at_once=0)
    assert len(project.runs()) == 4
