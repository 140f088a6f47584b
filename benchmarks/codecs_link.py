"""Deployed rounds whose sites are behind slow or long links."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from rounds import SCHEMA, sized_job, time_rounds, write_site
from scratch import scratch

from hanse.embedded.datapods import datapod
from hanse.embedded.deployment import Deployment


async def rounds_behind_links(
    codec: dict[str, Any] | None, *, megabytes: int, mbit: float, sites: int, rounds: int = 2
) -> float:
    """Seconds of a round (median, without the first): a model of so many MB down and its update up, and one step.

    Args:
        codec: the job's section; None: plain updates.
        mbit: of each site's link, in either direction.
    """
    job = sized_job(rounds, sites, megabytes) | ({} if codec is None else {"codec": codec})
    job["participants"]["deadline"] = 3000
    with scratch("codecs-link") as name:
        async with Deployment(Path(name), "links", {}, SCHEMA) as deployment:
            await join_behind_links(deployment, sites, ["--mbit", str(mbit)])
            return round((await time_rounds(deployment, job)).p50, 1)


async def join_behind_links(deployment: Deployment, sites: int, link: list[str]) -> None:
    """Start so many sites, each behind a link of its own (`gwas_link`), and wait until they have joined."""
    for number in range(sites):
        await _linked(deployment, f"site-{number}", deployment.folder / f"data-{number}", link)
    deadline = time.monotonic() + 120
    while len(await asyncio.to_thread(deployment.project.participants)) < sites and time.monotonic() < deadline:  # noqa: ASYNC110 - asked of the hub
        await asyncio.sleep(0.2)


async def _linked(deployment: Deployment, name: str, data: Path, options: list[str]) -> None:
    ports = json.loads((deployment.folder / "hub" / "ports.json").read_text())
    spec = datapod(
        name, home=deployment.home(name), url=deployment.hub.url,
        token=await asyncio.to_thread(deployment.project.invite, name), data=write_site(data).train,
        policy=deployment.policy_file(),
    )  # fmt: skip
    link = [sys.executable, str(Path(__file__).with_name("gwas_link.py")), *options]
    link += ["--ports", ",".join(str(ports[port]) for port in ("http", "bus", "store")), "--"]
    deployment.datapods[name] = deployment.hub.supervisor.start(replace(spec, argv=[*link, *spec.argv]))
