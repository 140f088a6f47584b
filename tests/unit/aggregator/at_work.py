"""Aggregators at work on a bus."""

import asyncio
from contextlib import asynccontextmanager

from hanse_aggregator.service import Aggregator
from hanse_reduction.engine import Engine


@asynccontextmanager
async def running(bus, engine=None):
    """An aggregator at work; stopped in order at the end."""
    stopping = asyncio.Event()
    work = asyncio.create_task(Aggregator(bus, engine or Engine(None)).run(stopping))
    try:
        yield
    finally:
        stopping.set()
        async with asyncio.timeout(60):
            await work
