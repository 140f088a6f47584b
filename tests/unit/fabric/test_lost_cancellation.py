"""A cancellation that comes together with a server's answer ends who was told to end."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import nats.errors
import pytest

from hanse_fabric.bus import claims
from hanse_fabric.bus.cancellation import keeps_cancellation

LOSES = pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python 3.12 loses no cancellation")


class Asking:
    """Waits as nats-py does; the answer and the cancellation come in one turn of the loop."""

    def __init__(self, ends: Exception | None = None) -> None:
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.ends = ends

    async def work(self) -> str:
        said = await asyncio.wait_for(self.answer, 60)
        if self.ends is not None:
            raise self.ends
        return said

    async def cancelled_while(self, task: asyncio.Task[Any]) -> None:
        await asyncio.sleep(0)
        self.answer.set_result("pong")
        task.cancel()


@LOSES
async def test_control_where_nothing_keeps_it_the_cancellation_is_lost() -> None:
    asking = Asking()
    task = asyncio.create_task(asking.work())
    await asking.cancelled_while(task)
    assert await task == "pong"


@pytest.mark.parametrize("ends", [None, OSError("the line broke")], ids=["answered", "failed"])
async def test_what_keeps_it_ends_as_cancelled(ends: Exception | None) -> None:
    asking = Asking(ends)
    task = asyncio.ensure_future(keeps_cancellation(asking.work)())
    assert isinstance(task, asyncio.Task)
    await asking.cancelled_while(task)
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_without_a_cancellation_answers_and_errors_are_what_they_are() -> None:
    asking = Asking()
    asking.answer.set_result("pong")
    assert await keeps_cancellation(asking.work)() == "pong"
    asking.ends = OSError("the line broke")
    with pytest.raises(OSError, match="the line broke"):
        await keeps_cancellation(asking.work)()


async def test_who_tidies_up_after_a_cancellation_is_not_cancelled_again() -> None:
    tidied = []

    @keeps_cancellation
    async def tidy() -> None:
        await asyncio.sleep(0)
        tidied.append(True)

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await tidy()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert tidied == [True]


class Servers:
    """A connection whose one server answers; the first answer comes together with whatever `meanwhile` does."""

    def __init__(self, meanwhile: Any) -> None:
        self._meanwhile = meanwhile

    def new_inbox(self) -> str:
        return "inbox"

    async def subscribe(self, _inbox: str) -> Servers:
        return self

    async def publish(self, *_: Any, **__: Any) -> None:
        pass

    async def unsubscribe(self) -> None:
        pass

    async def next_msg(self, timeout: float | None) -> Any:
        if timeout is not None:
            raise nats.errors.TimeoutError  # there is no other server
        future = asyncio.get_running_loop().create_future()
        task = asyncio.current_task()
        assert task is not None

        def answers() -> None:
            future.set_result(None)
            self._meanwhile(task)

        asyncio.get_running_loop().call_soon(answers)
        await asyncio.wait_for(future, 60)
        return type("Message", (), {"data": json.dumps({}).encode(), "headers": None})


async def test_servers_are_not_asked_on_when_the_time_is_over_as_the_first_answers() -> None:
    servers = Servers(lambda task: task.cancel())
    with pytest.raises(asyncio.CancelledError):
        await claims.ask(servers, "subject", b"")  # type: ignore[arg-type]
