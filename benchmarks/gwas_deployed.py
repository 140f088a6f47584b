"""One federated study on deployed processes: real servers, the hub's services and a datapod for each cohort."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from gwas_usage import Usage

from hanse.embedded.datapods import datapod
from hanse.embedded.deployment import Deployment, SiteFiles
from hanse_genomics.results import read, write_tsv
from hanse_genomics.simulation import Simulated

SERVICES = ("coordinator", "aggregator", "compensator")
_POLICY = {"workflows": ["federated_averaging", "association_study"]}


@dataclass(frozen=True, slots=True)
class StudyRun:
    """What a run took, bytes up and down by site on limited links, where its table lies, and the SNPs whose alleles are
    equally frequent.
    """

    wall_s: float
    usage: Usage
    links: dict[str, dict[str, int]]
    table: Path
    tied: frozenset[str]


async def deployed(
    made: Simulated, study: dict[str, Any], folder: Path, *, phenotypes: list[str], covariates: list[str],
    mbit: float | None = None,
) -> StudyRun:  # fmt: skip
    """Run a study as its owner would and fetch its results.

    Time is taken from the submission of the job to its end; the services and the datapods stand already.

    Args:
        mbit: of each site's link to the hub, in either direction; None: no limit.
    """
    schema = {"kind": "genotypes", "phenotypes": phenotypes, "covariates": covariates}
    sites = {
        name: SiteFiles(prefix, phenotypes=Path(f"{prefix}.pheno"), covariates=Path(f"{prefix}.cov"))
        for name, prefix in made.cohorts.items()
    }
    job = {
        "workflow": "association_study", "study": study,
        "participants": {"minimum": len(sites), "deadline": 3000, "patience": 3000},
    }  # fmt: skip
    async with Deployment(folder, "bench", sites if mbit is None else {}, schema, policy=_POLICY) as deployment:
        links = {} if mbit is None else {name: await _linked(deployment, name, sites[name], mbit) for name in sites}
        await _all_present(deployment, len(sites))
        pids = deployment.hub.supervisor.pids()
        roles = {"sites": [child.pid for child in deployment.datapods.values() if child.pid is not None]}
        roles |= {name: [pids[name]] for name in SERVICES}
        roles |= {name: [pids[name]] for name in pids if name in ("bus", "nats", "object-store")}
        began = time.perf_counter()
        async with Usage(roles) as usage:
            run = await asyncio.to_thread(deployment.project.run, job)
            await asyncio.to_thread(lambda: [None for _ in run.watch()])
            wall = time.perf_counter() - began
        counted = {name: json.loads(counts.read_text()) for name, counts in links.items()}
        if run.state != "completed":
            raise RuntimeError(f"the study ended {run.state}: {run.view.reason}")
        out = folder / "out"
        out.mkdir()
        for output in ("results", "summary"):
            await asyncio.to_thread(run.download, output, out / f"{output}.safetensors")
    results = await asyncio.to_thread(read, out)
    await asyncio.to_thread(write_tsv, results, out / "results.tsv.gz")
    ties = np.flatnonzero(results.column("maf") == 0.5)
    return StudyRun(
        wall, usage, counted, out / "results.tsv.gz", frozenset(results.snps.name[at] for at in ties.tolist())
    )


async def _linked(deployment: Deployment, name: str, files: SiteFiles, mbit: float) -> Path:
    """Start a site behind a link of its own: the file in which the link counts its bytes."""
    ports = json.loads((deployment.folder / "hub" / "ports.json").read_text())
    counts = deployment.folder / f"{name}.link.json"
    spec = datapod(
        name, home=deployment.home(name), url=deployment.hub.url,
        token=await asyncio.to_thread(deployment.project.invite, name), data=files.train,
        policy=deployment.policy_file(), phenotypes=files.phenotypes, covariates=files.covariates,
    )  # fmt: skip
    link = [sys.executable, str(Path(__file__).with_name("gwas_link.py")), "--mbit", str(mbit), "--counts", str(counts)]
    link += ["--ports", ",".join(str(ports[port]) for port in ("http", "bus", "store")), "--"]
    deployment.datapods[name] = deployment.hub.supervisor.start(replace(spec, argv=[*link, *spec.argv]))
    return counts


async def _all_present(deployment: Deployment, sites: int) -> None:
    """Until every datapod has joined and its worker stands."""
    deadline = time.monotonic() + 120
    while len(await asyncio.to_thread(deployment.project.participants)) < sites and time.monotonic() < deadline:  # noqa: ASYNC110 - asked of the hub
        await asyncio.sleep(0.2)
    await asyncio.sleep(3)  # workers load their libraries


def machine() -> str:
    """The processor's load before a run: figures of a busy machine say little."""
    return subprocess.run(["uptime"], check=False, capture_output=True, text=True).stdout.strip() or sys.platform
