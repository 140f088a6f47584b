"""Blocking calls on a loop of its own, and presence that a hub's absence does not end."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest

from hanse import site
from hanse.background import LoopThread
from hanse_fabric.errors import ErrorCode, HanseError


@pytest.fixture
def worker() -> Any:
    worker = LoopThread("test")
    yield worker
    worker.close()


async def test_the_background_loop_works_inside_a_running_loop(worker: LoopThread) -> None:
    async def where() -> str:
        return threading.current_thread().name

    assert worker.do(where()) == "test"


def test_errors_in_the_background_loop_reach_the_caller(worker: LoopThread) -> None:
    async def fail() -> None:
        raise HanseError(ErrorCode.GONE, "over")

    with pytest.raises(HanseError, match="over"):
        worker.do(fail())


def test_closing_ends_what_still_runs_and_may_be_repeated() -> None:
    worker, ended, began = LoopThread("test"), threading.Event(), threading.Event()

    async def forever() -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    worker.start(forever())
    assert began.wait(60)
    worker.close()
    worker.close()
    assert ended.is_set()
    assert worker.closed
    assert "test" not in {thread.name for thread in threading.enumerate()}


async def test_a_site_is_present_again_after_the_hub_was_away() -> None:
    told: list[int] = []
    enough = asyncio.Event()

    class Link:
        pace = 0.0

        async def presence(self) -> None:
            told.append(len(told))
            if len(told) < 3:
                raise HanseError(ErrorCode.UNAVAILABLE, "the bus is away")
            enough.set()

    task = asyncio.create_task(site._stay_present(cast(Any, Link())))
    async with asyncio.timeout(60):
        await enough.wait()
    task.cancel()
    assert len(told) >= 3
