"""Rounds a second in simulation: the true services over the bus in memory, in virtual time, in one process.

PYTHONPATH=tests python benchmarks/simulated.py
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from scratch import scratch

from hanse_fabric.virtual_time import VirtualClock
from simulation.league import league


def simulated_rounds_per_s(rounds: int = 50, sites: int = 10) -> float:
    """Rounds of averaging a model of eight weights, from the submission to the end, by the machine's clock."""
    job: dict[str, Any] = {
        "rounds": rounds, "model": {"name": "linear"}, "evaluate": {"every": 0}, "participants": {"minimum": sites}
    }  # fmt: skip
    clock = VirtualClock()
    spent = 0.0

    async def main(folder: Path) -> None:
        nonlocal spent
        async with league(clock, folder, sites=sites) as made:
            began = time.perf_counter()
            await made.submit(**job)
            record = await made.ended()
            spent = time.perf_counter() - began
            if record.state != "completed":
                raise RuntimeError(f"the run {record.state}: {record.reason}")

    with scratch("simulated") as folder:
        clock.run(main(Path(folder)))
    return rounds / spent


if __name__ == "__main__":
    print(json.dumps({"simulated_rounds_per_s": round(simulated_rounds_per_s(), 1)}))
