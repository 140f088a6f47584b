"""Runs over the digits of three sites, and the bits that they end in."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hanse.embedded.deployment import Deployment, SiteFiles
from hanse.hub import Run
from hanse_learning.digits import write_shares

SITES = ["north", "east", "south"]
SCHEMA = {"kind": "array", "shape": [64], "task": "classification", "classes": 10, "minimum": 0, "maximum": 1}


def share_digits(folder: Path, sites: Sequence[str] = SITES) -> dict[str, SiteFiles]:
    """Write each site's part of the digits."""
    write_shares(folder, sites, seed=3)
    return files_of(folder, sites)


def files_of(folder: Path, sites: Sequence[str] = SITES) -> dict[str, SiteFiles]:
    return {name: SiteFiles(folder / name / "train.npz", folder / name / "test.npz") for name in sites}


async def submit(deployment: Deployment, description: dict[str, Any]) -> Run:
    return await asyncio.to_thread(deployment.project.run, description)


async def digest(run: Run) -> str:
    """The final model's digest; fails where the run did."""
    await asyncio.to_thread(run.wait)
    assert run.state == "completed", f"{run.state}: {run.view.reason}"
    assert run.view.model_digest is not None
    return run.view.model_digest
