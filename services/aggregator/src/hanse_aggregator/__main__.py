"""`python -m hanse_aggregator`: one replica of the aggregator, set up by HANSE_* variables."""

from __future__ import annotations

import asyncio
import os

from hanse_aggregator.settings import AggregatorSettings
from hanse_fabric.service import Service, service_main


async def main(service: Service[AggregatorSettings]) -> None:
    """Work the queue until told to stop. numpy is loaded here, after the settings were found to be right.

    Its linear algebra has one thread: the last bit of a large product depends on their number, and an aggregator makes
    the same bits on any machine; jobs and leaves go side by side anyway.
    """
    for library in ("OPENBLAS", "OMP", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    from hanse_aggregator.service import Aggregator
    from hanse_reduction.arithmetic import choose_arithmetic
    from hanse_reduction.engine import Engine

    settings = service.settings
    arithmetic = await asyncio.to_thread(choose_arithmetic, settings.reduce_device)
    engine = Engine(service.store, threads=settings.reduce_threads, arithmetic=arithmetic)
    aggregator = Aggregator(service.bus, engine, jobs=settings.reduce_jobs)
    service.set_ready()
    await aggregator.run(service.stopping)


if __name__ == "__main__":
    service_main("aggregator", AggregatorSettings, main)
