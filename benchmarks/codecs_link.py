"""Deployed rounds whose sites are behind slow links."""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from rounds import SCHEMA, sized_job, write_site

from hanse.embedded.datapods import datapod
from hanse.embedded.deployment import Deployment


async def rounds_behind_links(
    codec: dict[str, Any] | None, *, megabytes: int, mbit: float, sites: int, rounds: int = 3
) -> float:
    """Seconds of a round (median, without the first): a model of so many MB down and its update up, and one step.

    Args:
        codec: the job's section; None: plain updates.
        mbit: of each site's link, in either direction.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with Deployment(folder, "links", {}, SCHEMA) as deployment:
            for number in range(sites):
                await _linked(deployment, f"site-{number}", folder / f"data-{number}", mbit)
            deadline = time.monotonic() + 120
            while len(await asyncio.to_thread(deployment.project.participants)) < sites and time.monotonic() < deadline:  # noqa: ASYNC110 - asked of the hub
                await asyncio.sleep(0.2)
            job = sized_job(rounds, sites, megabytes)
            job["participants"]["deadline"] = 3000
            run = await asyncio.to_thread(deployment.project.run, job | ({} if codec is None else {"codec": codec}))
            ends = await asyncio.to_thread(
                lambda: [event.at.timestamp() for event in run.watch() if event.kind == "round-finished"]
            )
            if run.state != "completed":
                raise RuntimeError(f"the run ended {run.state}: {run.view.reason}")
    return round(statistics.median(later - earlier for earlier, later in itertools.pairwise(ends)), 1)


async def _linked(deployment: Deployment, name: str, data: Path, mbit: float) -> None:
    """Start a site behind a link of its own."""
    ports = json.loads((deployment.folder / "hub" / "ports.json").read_text())
    spec = datapod(
        name, home=deployment.home(name), url=deployment.hub.url,
        token=await asyncio.to_thread(deployment.project.invite, name), data=write_site(data).train,
        policy=deployment.policy_file(),
    )  # fmt: skip
    link = [sys.executable, str(Path(__file__).with_name("gwas_link.py")), "--mbit", str(mbit)]
    link += ["--counts", str(deployment.folder / f"{name}.link.json")]
    link += ["--ports", ",".join(str(ports[port]) for port in ("http", "bus", "store")), "--"]
    deployment.datapods[name] = deployment.hub.supervisor.start(replace(spec, argv=[*link, *spec.argv]))
