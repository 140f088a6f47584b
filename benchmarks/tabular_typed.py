"""A newcomer's first model, by typed commands alone: a folder with a CSV file for each site, a schema, a job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

SCHEMA = """\
kind: tabular
features:
  - {name: pclass}
  - {name: sex, kind: category, values: [female, male]}
  - {name: age}
  - {name: sibsp}
  - {name: parch}
  - {name: fare}
  - {name: embarked, kind: category, values: [C, Q, S]}
target: target
classes: 2
"""
JOB = """\
rounds: 10
model: {name: logistic}
participants: {minimum: 3}
"""
HANSE = (sys.executable, "-m", "hanse")


def seconds_to_first_model(folder: Path, sites: Mapping[str, pd.DataFrame]) -> float:
    """Seconds from the first command, which starts the hub, to predictions of the downloaded model."""
    folder.mkdir(parents=True)
    for name, rows in sites.items():
        rows.to_csv(folder / f"{name}.csv", index=False)
    (folder / "schema.yaml").write_text(SCHEMA)
    (folder / "job.yaml").write_text(JOB)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HANSE_")}
    started: list[subprocess.Popen[str]] = []

    def start(*argv: str) -> subprocess.Popen[str]:
        with (folder / f"log-{len(started)}").open("w") as log:
            process = subprocess.Popen(argv, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=log)
        started.append(process)
        return process

    def typed(*arguments: str) -> str:
        done = subprocess.run(
            [*HANSE, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"hanse {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    began = time.perf_counter()
    try:
        hub = start(*HANSE, "up", "--json")
        assert hub.stdout is not None
        url = json.loads(hub.stdout.readline())["url"]
        typed("project", "create", "triage", "--schema", "schema.yaml")
        for name in sites:
            token = json.loads(typed("project", "invite", "triage", name, "--json").splitlines()[-1])["token"]
            start(
                sys.executable, "-m", "hanse_datapod", "run", "--home", f"home-{name}", "--data", f"{name}.csv",
                "--join-url", url, "--token", token,
            )  # fmt: skip
        typed("run", "submit", "triage", "job.yaml", "--watch", "--no-ask")
        versions = json.loads(typed("model", "list", "triage", "--json").splitlines()[-1])
        typed("model", "download", "triage", str(versions[-1]["version"]), "triage.safetensors")
        typed("model", "predict", "triage.safetensors", "west.csv", "told.csv")
        took = time.perf_counter() - began
        if len(pd.read_csv(folder / "told.csv")) != len(sites["west"]):
            raise RuntimeError("the model has not told of every row")
    finally:
        for process in reversed(started):
            process.terminate()
        for process in reversed(started):
            process.wait(60)
    return took
