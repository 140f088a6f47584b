"""The figures of the README, measured on deployed processes: `make bench [ARGS=--json]`.

Every section starts a hub of its own with real servers. With --json the last line is one JSON object. Sections may be
named to measure some only: `python benchmarks/bench.py rounds sizes`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import processors
import reduce
from codecs_link import join_behind_links
from rounds import (
    SCHEMA,
    aggregator_peak_mib,
    resident_mib,
    sized_job,
    time_rounds,
    tiny_job,
    write_site,
)
from scratch import scratch
from store_time import round_through_store

from hanse.embedded.deployment import Deployment

Figures = dict[str, Any]
_AWAY_S = 0.05


async def rounds(folder: Path) -> Figures:
    """Tiny model; 2 and 4 participants with a process each."""
    figures: Figures = {}
    for participants in (2, 4):
        sites = {f"site-{i}": write_site(folder / f"{participants}" / f"data-{i}", seed=i) for i in range(participants)}
        async with Deployment(folder / f"{participants}", "bench", sites, SCHEMA) as deployment:
            if participants == 2:
                await asyncio.sleep(5)  # idle: nothing is asked of the services
                figures["idle_rss_mib"] = {k: round(v, 1) for k, v in resident_mib(deployment).items()}
            times = await time_rounds(deployment, tiny_job(100, participants))
            figures[f"round_p50_{participants}"] = round(times.p50, 4)
            if participants == 2:
                figures["round_p99_2"] = round(times.p99, 4)
                split = await processors.a_round(deployment, tiny_job(100, participants))
                figures["tiny_round_cpu_ms"] = round(sum(split.values()), 1)
                figures["tiny_round_cpu_ms_by_process"] = split
            figures["peak"] = max(figures.get("peak", 0), aggregator_peak_mib(deployment))
    return figures


async def idle(folder: Path) -> Figures:
    """What a minute takes in which nothing is asked: of a hub alone, and of what ten connected sites add to it."""
    figures: Figures = {}
    async with Deployment(folder, "bench", {}, SCHEMA) as deployment:
        await asyncio.sleep(5)
        alone = await processors.an_idle_minute(deployment)
        await deployment.add_multiplexed("ten", 10, write_site(folder / "data"))
        await asyncio.sleep(30)  # they join, and look at their data
        ten = await processors.an_idle_minute(deployment)
    hub = {name: used for name, used in ten.items() if name not in ("datapods", "workers")}
    figures["idle_cpu_ms_a_minute"] = round(sum(alone.values()), 1)
    figures["idle_cpu_ms_a_minute_by_process"] = alone
    figures["idle_site_cpu_ms_a_minute_at_hub"] = round((sum(hub.values()) - sum(alone.values())) / 10, 2)
    figures["idle_site_cpu_ms_a_minute"] = round((sum(ten.values()) - sum(hub.values())) / 10, 2)
    return figures


async def hundred(folder: Path) -> Figures:
    """Tiny model; 100 participants in two processes."""
    files = write_site(folder / "data")
    async with Deployment(folder, "bench", {}, SCHEMA) as deployment:
        for half in ("a", "b"):
            await deployment.add_multiplexed(half, 50, files)
        times = await time_rounds(deployment, tiny_job(20, 100))
        return {"round_p50_100": round(times.p50, 4), "peak": aggregator_peak_mib(deployment)}


async def sizes(folder: Path) -> Figures:
    """100 MB and 400 MB models; 2 participants. And the round beside its bytes by the S3 client alone."""
    sites = {f"site-{i}": write_site(folder / f"data-{i}", seed=i) for i in range(2)}
    figures: Figures = {}
    async with Deployment(folder, "bench", sites, SCHEMA) as deployment:
        for megabytes, count in ((100, 11), (400, 6)):  # the first rounds write to fresh files
            times = await time_rounds(deployment, sized_job(count, 2, megabytes))
            figures[f"round_s_{megabytes}mb"] = round(times.p50, 3)
            alone = await asyncio.to_thread(
                round_through_store, deployment, folder / "alone", megabytes=megabytes, clients=2, repeats=5
            )
            figures[f"round_over_store_time_{megabytes}mb"] = round(times.p50 / alone, 2)
        figures["round_over_store_time"] = figures["round_over_store_time_100mb"]
        figures["peak"] = aggregator_peak_mib(deployment)
    return figures


async def participants(folder: Path) -> Figures:
    """The aggregator's memory: 64 participants, 20 MB model."""
    files = write_site(folder / "data")
    async with Deployment(folder, "bench", {}, SCHEMA) as deployment:
        await deployment.add_multiplexed("many", 64, files)
        await time_rounds(deployment, sized_job(2, 64, 20))
        return {"peak": aggregator_peak_mib(deployment)}


async def memory(folder: Path) -> Figures:  # noqa: ARG001 - the sections' form
    """Linear reduction of arrays in memory, beside the machine's own sum."""
    return dict(reduce.measure(participants=16, columns=4 << 20, threads=2, repeats=7))


async def cold(folder: Path) -> Figures:
    """`hanse demo` from its process's start to its first published model; the median of three."""

    def once(index: int) -> float:
        argv = [sys.executable, "-m", "hanse", "demo", "--json", "--rounds", "1", "--dir", str(folder / str(index))]
        done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=300)
        return float(json.loads(done.stdout.splitlines()[-1])["seconds_to_first_round"])

    times = sorted([await asyncio.to_thread(once, index) for index in range(3)])
    return {"cold_first_round_s": times[1]}


async def links(folder: Path) -> Figures:
    """Round trips of a tiny round (train and evaluate) whose 3 sites are 50 ms away (root, Linux): plain, masked
    pairwise, and with an update that goes to the store."""
    figures: Figures = {}
    async with Deployment(folder, "bench", {}, SCHEMA) as deployment:
        await join_behind_links(deployment, 3, ["--delay", str(_AWAY_S)])
        stored = tiny_job(12, 3) | {"model": {"name": "mlp", "hidden": [512]}}
        for name, job in {
            "round_rtts": tiny_job(20, 3),
            "round_rtts_pairwise": tiny_job(12, 3) | {"secure_aggregation": {"mode": "pairwise"}},
            "round_rtts_stored": stored,
        }.items():
            figures[name] = round((await time_rounds(deployment, job)).p50 / (2 * _AWAY_S), 2)
    return figures


SECTIONS: dict[str, Callable[[Path], Awaitable[Figures]]] = {
    "memory": memory,
    "cold": cold,
    "rounds": rounds,
    "idle": idle,
    "hundred": hundred,
    "sizes": sizes,
    "participants": participants,
    "links": links,
}


async def main() -> None:
    """Measure the sections that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help="default: all")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures: Figures = {}
    peaks = []
    for name in arguments.sections or SECTIONS:
        if name == "links" and not arguments.sections and os.geteuid():
            print(f"{'round_rtts':24} left out: networks of its own need root", flush=True)
            continue
        with scratch("bench") as folder:
            found = await SECTIONS[name](Path(folder))
        if "peak" in found:
            peaks.append(found.pop("peak"))
        figures |= found
        for figure, value in found.items():
            print(f"{figure:24} {value}", flush=True)
    if peaks:
        figures["aggregator_peak_rss_mib"] = round(max(peaks), 1)
        print(f"{'aggregator_peak_rss_mib':24} {figures['aggregator_peak_rss_mib']}")
    if arguments.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    asyncio.run(main())
