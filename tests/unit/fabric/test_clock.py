"""What every clock does: one suite, for the machine's and for the virtual one."""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanse_fabric.clock import Clock, SystemClock
from hanse_fabric.virtual_time import VirtualClock, VirtualLoop

Run = Callable[[Callable[[Clock], Coroutine[Any, Any, Any]]], Any]


def on_the_machine(main: Callable[[Clock], Coroutine[Any, Any, Any]]) -> Any:
    return asyncio.run(main(SystemClock()))


def in_virtual_time(main: Callable[[Clock], Coroutine[Any, Any, Any]]) -> Any:
    clock = VirtualClock()
    return clock.run(main(clock))


@pytest.fixture(params=[on_the_machine, in_virtual_time])
def run(request: pytest.FixtureRequest) -> Run:
    chosen: Run = request.param
    return chosen


def test_a_sleep_lasts_at_least_as_long_as_asked_on_both_faces_of_the_clock(run: Run) -> None:
    async def main(clock: Clock) -> None:
        began, day = clock.monotonic(), clock.now()
        await clock.sleep(0.02)
        assert clock.monotonic() - began >= 0.02 - 1e-6
        assert (clock.now() - day).total_seconds() > 0.01
        assert day.tzinfo is UTC

    run(main)


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_sleep_of_nothing_lets_others_go_first(run: Run, seconds: float) -> None:
    async def main(clock: Clock) -> list[str]:
        order = []
        other = asyncio.create_task(clock.sleep(0))
        other.add_done_callback(lambda _: order.append("other"))
        for _ in range(3):
            await clock.sleep(seconds)
        return [*order, "main"]

    assert run(main) == ["other", "main"]


def test_sleepers_wake_in_the_order_of_their_times(run: Run) -> None:
    async def main(clock: Clock) -> list[float]:
        woken: list[float] = []

        async def sleeper(seconds: float) -> None:
            await clock.sleep(seconds)
            woken.append(seconds)

        await asyncio.gather(*(sleeper(seconds) for seconds in (0.06, 0.0, 0.03)))
        return woken

    assert run(main) == [0.0, 0.03, 0.06]


def test_a_timeout_cancels_what_lasts_longer_and_tells_so(run: Run) -> None:
    async def main(clock: Clock) -> None:
        forever = asyncio.get_running_loop().create_future()
        with pytest.raises(TimeoutError):
            async with clock.timeout(0.01):
                await forever
        assert forever.cancelled()

    run(main)


def test_a_timeout_leaves_alone_what_ends_in_time_and_what_has_no_limit(run: Run) -> None:
    async def main(clock: Clock) -> None:
        async with clock.timeout(60):
            await clock.sleep(0.001)
        async with clock.timeout(None):
            await clock.sleep(0.001)

    run(main)


def test_a_timeout_is_rescheduled_on_the_monotonic_face_of_its_clock(run: Run) -> None:
    async def main(clock: Clock) -> None:
        async def late() -> None:
            async with clock.timeout(3600) as limit:
                limit.reschedule(clock.monotonic() + 0.01)
                await clock.sleep(60)

        with pytest.raises(TimeoutError):
            await late()

    run(main)


def test_a_cancelled_sleep_is_over_and_the_others_go_on(run: Run) -> None:
    async def main(clock: Clock) -> None:
        long, short = asyncio.create_task(clock.sleep(3600)), asyncio.create_task(clock.sleep(0.01))
        await clock.sleep(0)
        long.cancel()
        await short
        assert long.cancelled()

    run(main)


def test_a_blocking_call_in_a_thread_ends_before_a_long_timeout(run: Run) -> None:
    async def main(clock: Clock) -> str:
        async with clock.timeout(60):
            await asyncio.to_thread(time.sleep, 0.02)
        return "done"

    assert run(main) == "done"


def test_a_thread_reads_the_same_time_as_the_loop(run: Run) -> None:
    async def main(clock: Clock) -> None:
        before = clock.monotonic()
        inside = await asyncio.to_thread(clock.monotonic)
        assert before <= inside <= clock.monotonic()

    run(main)


@given(st.lists(st.floats(0, 1e6), max_size=30))
def test_virtual_sleepers_wake_in_order_at_exactly_their_times(durations: list[float]) -> None:
    clock = VirtualClock()
    woken: list[tuple[float, float]] = []

    async def sleeper(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((seconds, clock.monotonic()))

    async def main() -> None:
        await asyncio.gather(*(sleeper(seconds) for seconds in durations))

    clock.run(main())
    assert sorted(seconds for seconds, _ in woken) == sorted(durations)
    assert all(abs(seconds - at) <= 1e-5 for seconds, at in woken)
    assert all(earlier <= later for (_, earlier), (_, later) in itertools.pairwise(woken))


def test_a_year_passes_at_once_and_to_the_second() -> None:
    clock = VirtualClock()
    began = clock.now()
    clock.run(clock.sleep(365 * 86400))
    assert (clock.now() - began).total_seconds() == pytest.approx(365 * 86400, abs=1e-3)


def test_timers_that_know_no_clock_are_virtual_too() -> None:
    """Third-party code waits by the event loop: were its time another, it would wait for hours or be late at once."""
    clock = VirtualClock()

    async def main() -> tuple[float, float]:
        await asyncio.sleep(3600)
        after_sleep = clock.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100):
                await asyncio.Event().wait()
        return after_sleep, clock.monotonic()

    assert clock.run(main()) == (3600.0, 3700.0)


def test_virtual_time_stands_still_while_a_thread_works() -> None:
    clock = VirtualClock()

    async def main() -> tuple[float, bool]:
        alarm = asyncio.create_task(clock.sleep(0.001))
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        await asyncio.to_thread(time.sleep, 0.01)
        await loop.run_in_executor(loop.threads, time.sleep, 0.05)
        return clock.monotonic(), alarm.done()

    assert clock.run(main()) == (0.0, False)


def test_virtual_time_stands_still_while_a_thread_works_even_after_its_caller_was_cancelled() -> None:
    """Cancelling the await of a thread does not end the thread."""
    clock = VirtualClock()
    times: list[float] = []

    async def asking_the_loop() -> None:
        pass

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)

        def work() -> None:
            asyncio.run_coroutine_threadsafe(asking_the_loop(), loop).result()
            time.sleep(0.05)
            times.append(clock.monotonic())

        async def await_work() -> None:
            await loop.run_in_executor(loop.threads, work)

        given_up = asyncio.create_task(await_work())
        await asyncio.sleep(0)
        given_up.cancel()
        await clock.sleep(10)

    clock.run(main())
    assert times == [0.0]


def test_a_thread_may_wait_for_the_loop_that_runs_it_and_a_call_without_one_is_told_so_by_whomever_it_asks() -> None:
    clock = VirtualClock()

    async def answer() -> str:
        await clock.sleep(0)
        return "answer"

    async def main() -> str:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)

        def asking() -> str:
            asked = answer()
            try:
                return asyncio.run_coroutine_threadsafe(asked, loop).result()
            finally:
                asked.close()

        def asking_by_another() -> str:
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(asking).result()

        for call in (asking, asking_by_another):
            with pytest.raises(RuntimeError, match="needs a thread"):
                await asyncio.to_thread(call)
        assert await loop.run_in_executor(loop.threads, asking_by_another) == "answer"
        return await loop.run_in_executor(loop.threads, asking)

    assert clock.run(main()) == "answer"


def test_virtual_time_passes_while_a_thread_waits_for_what_the_loop_does_for_it() -> None:
    clock = VirtualClock()

    async def sleeper() -> float:
        await clock.sleep(60)
        return clock.monotonic()

    async def failing() -> None:
        raise ValueError("no answer")

    async def main() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        answered = await loop.run_in_executor(loop.threads, lambda: loop.answer(sleeper()))
        with pytest.raises(ValueError, match="no answer"):
            await loop.run_in_executor(loop.threads, lambda: loop.answer(failing()))
        return answered, clock.monotonic()

    assert clock.run(main()) == (60.0, 60.0)


def test_a_blocking_call_may_run_a_loop_of_its_own_and_its_error_reaches_the_caller() -> None:
    clock = VirtualClock()

    async def twice(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    async def main() -> int:
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        return await asyncio.to_thread(lambda: asyncio.run(twice(21)))

    assert clock.run(main()) == 42


def test_an_async_generator_that_is_collected_in_a_blocking_call_is_closed_all_the_same() -> None:
    clock, closed = VirtualClock(), []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await asyncio.sleep(1)
            closed.append(clock.monotonic())

    async def begin() -> None:
        begun = [numbers()]
        begun.append(begun)  # type: ignore[arg-type]
        async for _ in begun[0]:
            break

    async def main() -> None:
        await begin()
        await asyncio.to_thread(gc.collect)
        await asyncio.sleep(5)
        assert closed == [1.0]

    clock.run(main())


def test_blocking_calls_end_in_the_order_in_which_they_were_made_however_long_they_take() -> None:
    clock, ended = VirtualClock(), []

    async def call(number: int) -> None:
        await asyncio.to_thread(time.sleep, 0.02 if number == 0 else 0)
        ended.append(number)

    async def main() -> None:
        await asyncio.gather(*map(call, range(5)))

    clock.run(main())
    assert ended == [0, 1, 2, 3, 4]


def test_a_simulation_in_which_nothing_can_happen_any_more_ends_with_an_error_that_names_who_waits() -> None:
    clock = VirtualClock()

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.Event().wait(), name="waits-in-vain")

    with pytest.raises(RuntimeError, match=r"stands still.*waits-in-vain"):
        clock.run(main())


def test_a_virtual_clock_refuses_to_sleep_in_a_loop_of_another_time() -> None:
    clock = VirtualClock()
    with pytest.raises(RuntimeError, match=r"clock\.run"):
        asyncio.run(clock.sleep(1))
    with pytest.raises(RuntimeError, match=r"clock\.run"):
        VirtualClock().run(clock.sleep(1))


def test_a_virtual_clock_goes_on_where_its_last_run_ended() -> None:
    clock = VirtualClock()
    clock.run(clock.sleep(5))
    clock.run(clock.sleep(6))
    assert clock.monotonic() == 11.0


def test_a_call_that_is_slow_to_end_lets_the_loop_wait_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what the loop does meanwhile comes before or after the next call's result, as the machine has time."""
    ended = VirtualLoop._ended

    def slow(loop: VirtualLoop, call: Future[Any]) -> None:
        time.sleep(0.05)
        ended(loop, call)

    monkeypatch.setattr(VirtualLoop, "_ended", slow)

    async def main() -> None:
        await asyncio.to_thread(time.sleep, 0.05)
        call = asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.2)
        await asyncio.sleep(0)
        assert call.done(), "the loop went on beside the call"

    VirtualClock().run(main())
