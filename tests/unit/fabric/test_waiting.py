"""Work side by side: what is left when it is ended."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from hanse_fabric.waiting import all_of, stop


@pytest.mark.asyncio
async def test_where_all_is_cancelled_nothing_is_left_that_was_never_begun() -> None:
    begun, never = asyncio.Event(), asyncio.Event()

    async def piece() -> None:
        begun.set()
        await never.wait()

    pieces = [piece() for _ in range(3)]
    whole = asyncio.ensure_future(all_of(pieces, at_once=1))
    await begun.wait()
    assert [inspect.getcoroutinestate(each) for each in pieces] == ["CORO_SUSPENDED", "CORO_CREATED", "CORO_CREATED"]
    await stop(whole)
    assert {inspect.getcoroutinestate(each) for each in pieces} == {"CORO_CLOSED"}
