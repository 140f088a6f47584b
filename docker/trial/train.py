"""Trains a small model across the trial's two sites, and says what came out: `docker compose run --rm train`."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import hanse

JOB = {
    "rounds": 3,
    "participants": {"minimum": 2, "deadline": 120},
    "model": {"name": "mlp", "hidden": [16]},
    "train": {"epochs": 2, "batch_size": 32, "optimizer": {"name": "sgd", "lr": 0.1}},
    "seed": 1,
}


def main() -> int:
    """See the module; the exit status is 0 where the run was completed and its model could be fetched."""
    key = Path("/etc/hanse/owner/api_key").read_text().strip()
    with hanse.connect(os.environ["HANSE_URL"], api_key=key, patience=120.0) as hub:
        run = hub.projects.get("trial").run(JOB)
        for event in run.watch():
            print(event, flush=True)
        run.refresh()
        if run.state != "completed":
            print(f"run {run.id} ended {run.state}: {run.view.reason}", file=sys.stderr)
            return 1
        with tempfile.TemporaryDirectory() as folder:
            path = run.model.download(Path(folder) / "model.safetensors")
            print(f"run {run.id} completed: {run.model.digest}, {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
