"""What coordinator and aggregator know of open steps and of updates without reading the bus, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hanse_coordinator.open_steps import open_steps_of
from hanse_fabric.bus.memory import MemoryBus
from hanse_fabric.bus.port import Headers
from hanse_fabric.doors.asking import Doors
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import Outcome, Result
from hanse_fabric.messages.doors import OpenFor, OpenTasks
from hanse_fabric.subjects import HANDED_IN, OPENED, OPENS, RESULT, TASK, UPDATE, Door, Stream
from hanse_fabric.tensors.refs import ref_of_bytes
from hub_doors import hub_doors, take_in

RUN, STEP = "abcdef012345", "r1-train"
WHERE = {"project": "study", "run": RUN, "step": STEP}


class Counting(MemoryBus):
    """Counts what is read of tasks and updates, and what services ask each other. Tells may be lost."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []
        self.asked: list[str] = []
        self.loses = False

    async def request(self, subject: str, data: bytes, *, timeout: float = 10.0) -> bytes:
        if not subject.startswith("hanse.v1.door."):
            self.asked.append(subject)
        return await super().request(subject, data, timeout=timeout)

    async def tell(self, subject: str, data: bytes, *, headers: Headers | None = None) -> None:
        if not self.loses:
            await super().tell(subject, data, headers=headers)

    async def last(self, stream: Stream, subject: str, *, timeout: float = 10.0) -> Any:
        if stream in (TASK.stream, UPDATE.stream):
            self.read.append(subject)
        return await super().last(stream, subject, timeout=timeout)


@pytest.fixture
async def bus() -> AsyncIterator[Counting]:
    made = Counting()
    yield made
    await made.close()


async def test_of_a_step_that_is_collected_here_no_task_is_read_from_the_bus(bus: Counting) -> None:
    keys = await take_in(bus, "a", project="study", run=RUN, step=STEP)
    site = Doors(bus, "study", "a", keys["a"])
    async with hub_doors(bus):
        with open_steps_of(bus).collecting(**WHERE) as marks:
            marks["a"] = f"{RUN}.{STEP}.1"
            await site.ask(Door.RESULT, b"an answer", run=RUN, step=STEP)
            known = OpenTasks.decode(await site.ask(Door.TASKS, run=RUN, step=STEP))
        assert (known.open, bus.read) == ((f"{RUN}.{STEP}.1",), [])
        # The control: of a step that another coordinator collects, the bus says the same.
        await site.ask(Door.RESULT, b"an answer", run=RUN, step=STEP)
        found = OpenTasks.decode(await site.ask(Door.TASKS, run=RUN, step=STEP))
    assert (found.open, len(bus.read)) == (known.open, 2)


async def test_what_was_signed_at_this_door_beside_an_answer_need_not_be_verified_again(bus: Counting) -> None:
    keys = await take_in(bus, "a", project="study", run=RUN, step=STEP)
    known, site = open_steps_of(bus), Doors(bus, "study", "a", keys["a"])
    own = WHERE | {"participant": "a"}
    async with hub_doors(bus):
        with known.collecting(**WHERE):
            await site.ask(Door.RESULT, b"an answer", run=RUN, step=STEP, beside="a head")
            assert known.came_beside("a head", **own)
            # Nothing else is: another text, which the bus may hold, and what another signed or nobody.
            assert not known.came_beside("another", **own)
            assert not known.came_beside("a head", **own | {"participant": "b"})
            other = Doors(bus, "study", "a", SigningKey.create())
            with pytest.raises(HanseError, match="signature"):
                await other.ask(Door.RESULT, b"an answer", run=RUN, step=STEP, beside="forged")
            assert not known.came_beside("forged", **own)
        assert not known.came_beside("a head", **own)


async def test_a_step_is_not_open_any_more_once_it_was_collected_and_purged(bus: Counting) -> None:
    keys = await take_in(bus, "a", "b", project="study", run=RUN, step=STEP)
    async with hub_doors(bus):
        with open_steps_of(bus).collecting(**WHERE) as marks:
            marks["a"] = f"{RUN}.{STEP}.1"
            assert TASK.stream is not None
            await bus.purge(TASK.stream, TASK.wildcard(project="study", run=RUN, step=STEP))
            # Nobody else's task is open by it.
            with pytest.raises(HanseError) as refusal:
                await Doors(bus, "study", "b", keys["b"]).ask(Door.RESULT, b"one", run=RUN, step=STEP)
            assert refusal.value.code is ErrorCode.GONE
        with pytest.raises(HanseError) as refusal:
            await Doors(bus, "study", "a", keys["a"]).ask(Door.RESULT, b"one", run=RUN, step=STEP)
    assert refusal.value.code is ErrorCode.GONE


async def test_an_update_that_was_just_handed_in_is_not_read_to_say_so(bus: Counting) -> None:
    keys = await take_in(bus, "a", project="study", run=RUN, step=STEP)
    digest, other = "ab" * 32, "cd" * 32
    async with hub_doors(bus):
        await Doors(bus, "study", "a", keys["a"]).ask(Door.UPDATE, b"it", run=RUN, step=STEP, digest=digest)
        bus.read.clear()
        asked = HANDED_IN.of(project="study", run=RUN, participant="a", digest=digest)
        assert (await bus.request(asked, b""), bus.read) == (b"1", [])
        # The control: of one that was not, the bus is asked, again and again for a while.
        never = HANDED_IN.of(project="study", run=RUN, participant="a", digest=other)
        assert (await bus.request(never, b""), len(bus.read) > 1) == (b"0", True)


@pytest.mark.parametrize("lost", [False, True], ids=["told", "lost"])
async def test_what_services_tell_each_other_need_not_be_asked_and_may_be_lost(bus: Counting, lost: bool) -> None:
    keys = await take_in(bus, "a", project="study", run=RUN, step=STEP)
    site, update = Doors(bus, "study", "a", keys["a"]), b"an update"
    ref = ref_of_bytes(update)
    unsigned = Result(
        task="0" * 32, **WHERE, participant="a", outcome=Outcome.DONE, update=ref, examples=1
    )  # fmt: skip
    bus.loses = lost
    async with hub_doors(bus):
        await asyncio.sleep(0.05)  # both listen
        await bus.tell(OPENS.of(**WHERE), OpenFor(participants=("a",)).encode())
        await asyncio.sleep(0.05)
        result = site.ask(Door.RESULT, unsigned.encode(), run=RUN, step=STEP)
        handed_in = site.ask(Door.UPDATE, update, run=RUN, step=STEP, digest=ref.digest)
        await asyncio.gather(result, handed_in)
    named = [OPENED.of(**WHERE, participant="a"), HANDED_IN.of(**_of_run(), participant="a", digest=ref.digest)]
    assert bus.asked == (named if lost else [])
    assert RESULT.stream is not None
    assert await bus.last(RESULT.stream, RESULT.of(**WHERE, participant="a")) is not None


async def test_whom_a_step_was_not_opened_for_is_not_let_in_by_what_others_were_told(bus: Counting) -> None:
    keys = await take_in(bus, "a", project="study", run=RUN, step=STEP)
    keys |= await take_in(bus, "b", project="study", run=RUN, step="r2-train")
    async with hub_doors(bus):
        await asyncio.sleep(0.05)
        await bus.tell(OPENS.of(**WHERE), b"no message")
        await bus.tell(OPENS.of(**WHERE), OpenFor(participants=("a",)).encode())
        await asyncio.sleep(0.05)
        await Doors(bus, "study", "a", keys["a"]).ask(Door.UPDATE, b"it", run=RUN, step=STEP, digest="ab" * 32)
        with pytest.raises(HanseError) as refusal:
            await Doors(bus, "study", "b", keys["b"]).ask(Door.UPDATE, b"it", run=RUN, step=STEP, digest="ab" * 32)
    assert refusal.value.code is ErrorCode.GONE
    assert bus.asked == [OPENED.of(**WHERE, participant="b")]


def _of_run() -> dict[str, str]:
    return {name: value for name, value in WHERE.items() if name != "step"}
