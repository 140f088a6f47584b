"""What conducting a run costs in its three places, and what it takes to read it: `make bench-conduct [ARGS=--json]`.

`in_memory_rounds_per_s`, `simulated_rounds_per_s`, `deployed_rounds_per_s`: averaging of a tiny model over 10 sites, in
one process without a bus, by the true services in virtual time, and by deployed processes; each the median of several
runs. In the first two a site does a few steps of gradient descent on a few examples, with numpy; a deployed site trains
a torch model of 650 parameters for one epoch, and evaluates the next one.

`suite_minutes`: of the last whole `make test` in this folder; null where there was none.

`workflow_files`, `source_lines`: see `reading.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from reading import FIRST_RELEASE, ROOT, source_lines, source_lines_at, workflow_files
from rounds import SCHEMA, time_rounds, tiny_job, write_site
from scratch import scratch
from simulated import simulated_rounds_per_s

from hanse.embedded.deployment import Deployment
from hanse_schemas.job import check_job
from hanse_workflows.memory import conduct
from unit.workflows.memory_sites import LinearSite

SITES = 10


def in_memory_rounds_per_s(rounds: int = 100) -> float:
    """One run, from the call to the end."""
    job = check_job(
        {
            "rounds": rounds, "model": {"name": "linear"}, "evaluate": {"every": 0}, "participants": {"minimum": SITES},
        }
    )  # fmt: skip
    sites = {f"site-{number}": LinearSite(number) for number in range(SITES)}
    began = time.perf_counter()
    conducted = conduct(job, sites)
    spent = time.perf_counter() - began
    if len(conducted.versions) != rounds:
        raise RuntimeError(f"{len(conducted.versions)} versions of {rounds} rounds")
    return rounds / spent


async def deployed_rounds_per_s(runs: int, rounds: int = 40) -> float:
    """From the median time of a round, as `make bench` measures it; a process for each site; the median of the runs."""
    with scratch("conduct") as name:
        folder = Path(name)
        sites = {f"site-{number}": write_site(folder / f"data-{number}", seed=number) for number in range(SITES)}
        async with Deployment(folder, "bench", sites, SCHEMA) as deployment:
            times = [await time_rounds(deployment, tiny_job(rounds, SITES)) for _ in range(runs)]
    return statistics.median(1 / each.p50 for each in times)


def suite_minutes() -> float | None:
    """As `make test` has recorded it."""
    path = ROOT / "build" / "suite.json"
    return float(json.loads(path.read_text())["suite_minutes"]) if path.exists() else None


def median_of(runs: int, measure: Callable[[], float]) -> float:
    """Of so many runs, after one that warms up."""
    measure()
    return statistics.median(measure() for _ in range(runs))


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    parser.add_argument("--runs", type=int, default=5, help="runs in memory and simulated; deployed, half as many")
    parser.add_argument("--files", action="store_true", help="list the workflow's files")
    arguments = parser.parse_args()
    files = workflow_files()
    if arguments.files:
        print(*(path.relative_to(ROOT) for path in files), sep="\n")
    figures: dict[str, float | None] = {}

    def tell(name: str, value: float | None, beside: str = "") -> None:
        figures[name] = value
        print(f"{name:24} {'none recorded' if value is None else value}{beside}", flush=True)

    tell("in_memory_rounds_per_s", round(median_of(arguments.runs, in_memory_rounds_per_s), 1))
    tell("simulated_rounds_per_s", round(median_of(arguments.runs, simulated_rounds_per_s), 1))
    tell("deployed_rounds_per_s", round(asyncio.run(deployed_rounds_per_s((arguments.runs + 1) // 2)), 1))
    tell("suite_minutes", suite_minutes())
    tell("workflow_files", len(files))
    before = source_lines_at(FIRST_RELEASE)
    tell("source_lines", source_lines(), "" if before is None else f" (release 0.1.0, {FIRST_RELEASE}: {before})")
    if arguments.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
