"""A service that thousands ask at once answers them one after another, and works through nothing twice."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

import pytest

from clocks import in_virtual_time
from hanse_fabric.bus.broker import MemoryBroker
from hanse_fabric.bus.memory import MemoryBus
from hanse_fabric.bus.port import Handler
from hanse_fabric.doors import repeats
from hanse_fabric.doors.asking import Doors
from hanse_fabric.doors.repeats import Repeats
from hanse_fabric.doors.serving import Doorkeeper, Enrolled, Request, Shares
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import ParticipantRecord
from hanse_fabric.records import Bucket
from hanse_fabric.subjects import DOORS, PARTICIPANTS, Door
from hanse_fabric.virtual_time import VirtualClock

KEY = SigningKey.from_seed(bytes(32))
WORK_S = 0.1


class Service:
    """One whose processor does ten requests a second, in the order in which they came to it."""

    def __init__(self, clock: VirtualClock, *, at_once: int | None = None) -> None:
        self.clock, self.processor = clock, asyncio.Lock()
        self.worked = Counter[str]()
        self._broker = MemoryBroker(clock)
        self.bus = MemoryBus(self._broker)
        shares = {Door.PRESENCE: Shares(clock)}
        turns = None if at_once is None else {Door.PRESENCE: at_once}
        self.keeper = Doorkeeper(
            self.bus, Enrolled(self.bus), {Door.PRESENCE: self._work}, shares=shares, at_once=turns
        )  # fmt: skip

    async def _work(self, request: Request) -> bytes:
        async with self.processor:
            await self.clock.sleep(WORK_S)
        self.worked[request.asked.nonce] += 1
        return b"here"

    async def enrol(self, name: str) -> Doors:
        record = ParticipantRecord(
            project="triage", participant=name, public_key=base64.b64encode(KEY.public_bytes), bus_key="U",
            enrolled_at=datetime(2026, 1, 1, tzinfo=UTC),
        )  # fmt: skip
        await Bucket(self.bus, PARTICIPANTS, ParticipantRecord).create(record, project="triage", participant=name)
        return Doors(MemoryBus(self._broker), "triage", name, KEY)


@in_virtual_time
async def test_what_is_sent_again_while_it_is_worked_at_is_worked_at_once(clock: VirtualClock) -> None:
    service = Service(clock)
    doors = await service.enrol("north")
    async with service.keeper.serving("services"):
        await service.processor.acquire()
        asking = asyncio.create_task(doors.ask(Door.PRESENCE, timeout=30))
        await clock.sleep(20)
        service.processor.release()
        assert await asking == b"here"
        await clock.sleep(20)
    assert list(service.worked.values()) == [1]


@in_virtual_time
async def test_what_comes_once_more_after_its_answer_is_not_worked_at_again(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(clock)
    doors = await service.enrol("north")
    async with service.keeper.serving("services"):
        request = doors._signed(Door.PRESENCE, b"", {})
        first = await doors.bus.request(doors._subject(Door.PRESENCE), request)
        assert await doors.bus.request(doors._subject(Door.PRESENCE), request) == first
        assert service.worked.total() == 1
        await clock.sleep(repeats.REMEMBERED_S)
        await doors.bus.request(doors._subject(Door.PRESENCE), request)
        assert service.worked.total() == 2


async def sites_of(service: Service, count: int) -> list[float]:
    """Seconds until each of them was answered; they come together, while the service is held up for 40 s."""
    sites, begun = [await service.enrol(f"site-{index}") for index in range(count)], service.clock.monotonic()
    seconds: list[float] = []

    async def show_life(doors: Doors) -> None:
        while True:
            try:
                await doors.ask(Door.PRESENCE, timeout=30)
                break
            except HanseError as error:
                if error.code not in (ErrorCode.TIMEOUT, ErrorCode.UNAVAILABLE):
                    raise
                await service.clock.sleep(5)
        seconds.append(service.clock.monotonic() - begun)

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(service.keeper.serving("services"))
        await service.processor.acquire()
        group = await stack.enter_async_context(asyncio.TaskGroup())
        for doors in sites:
            group.create_task(show_life(doors))
        await service.clock.sleep(40)
        service.processor.release()
    return seconds


@in_virtual_time
async def test_a_crowd_is_answered_as_soon_as_it_can_be(clock: VirtualClock) -> None:
    service, count = Service(clock, at_once=16), 400
    seconds = await sites_of(service, count)
    needed = 40 + count * WORK_S
    assert max(seconds) <= 1.5 * needed
    assert service.worked.total() <= 1.2 * count


@in_virtual_time
async def test_control_without_memory_and_turns_the_service_works_on_for_nobody(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def each(_: object, __: object, work: object) -> object:
        return await work()  # type: ignore[operator]

    monkeypatch.setattr(Repeats, "once", each)
    service, count = Service(clock), 100
    with pytest.raises(TimeoutError):
        async with clock.timeout(10 * (40 + count * WORK_S)):
            await sites_of(service, count)
    assert service.worked.total() > 10 * count


@in_virtual_time
async def test_a_fault_of_the_service_ends_all_who_wait_for_it(clock: VirtualClock) -> None:
    remembered, calls = Repeats[bytes](clock), 0

    async def work() -> bytes:
        nonlocal calls
        calls += 1
        await clock.sleep(1)
        raise ValueError("a fault")

    found = await asyncio.gather(*(remembered.once("one", work) for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in found] == [ValueError] * 3
    assert calls == 1
    with pytest.raises(ValueError, match="a fault"):
        await remembered.once("one", work)
    assert calls == 2


@in_virtual_time
async def test_only_so_much_is_remembered(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "MOST_REMEMBERED_BYTES", 3 * (1000 + 512))
    remembered, calls = Repeats[bytes](clock), list[int]()

    async def ask(number: int, size: int = 1000) -> None:
        async def work() -> bytes:
            calls.append(number)
            return bytes(size)

        await remembered.once(number, work)

    for number in (1, 2, 3, 4, 4, 3, 2, 1):
        await ask(number)
    assert calls == [1, 2, 3, 4, 1]
    await ask(9, repeats.MOST_BYTES_EACH + 1)
    await ask(9, repeats.MOST_BYTES_EACH + 1)
    assert calls[-2:] == [9, 9]


async def test_where_one_kind_is_refused_to_the_service_it_serves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = MemoryBus(MemoryBroker())
    kinds = (Door.TASKS, Door.RESULT, Door.PRESENCE)
    shares = dict.fromkeys(kinds, Shares(bus.clock))
    keeper = Doorkeeper(bus, Enrolled(bus), dict.fromkeys(kinds, nothing), shares=shares)
    serve = bus.serve

    async def but_results(subject: str, handler: Handler, *, group: str) -> Any:
        if subject == DOORS[Door.RESULT].wildcard():
            raise HanseError(ErrorCode.FORBIDDEN, subject)
        return await serve(subject, handler, group=group)

    monkeypatch.setattr(bus, "serve", but_results)
    with pytest.raises(HanseError) as refusal:
        async with keeper.serving("services"):
            pass
    assert refusal.value.code is ErrorCode.FORBIDDEN
    assert not bus._servers


async def nothing(_request: Request) -> bytes:
    return b""
