"""A site that writes as much as its share of the door lets it, of what the hub keeps: answers to one open step, each
other than the one before, and late answers to runs that it makes up. What it fills is every project's.
"""

from __future__ import annotations

import asyncio
from collections import UserDict

import pytest

from adversary.site_league import League, Site, new_run
from clocks import in_virtual_time
from hanse_coordinator import doors
from hanse_coordinator.watching import sparing
from hanse_fabric.bus.broker import DUPLICATE_WINDOW_S
from hanse_fabric.bus.memory import MemoryBroker, MemoryBus
from hanse_fabric.doors.asking import Doors
from hanse_fabric.doors.serving import Shares
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.queue import stream_of
from hanse_fabric.subjects import AUDIT, EVENT, RESULT, TASK, Door
from hanse_fabric.virtual_time import VirtualClock
from hub_doors import hub_doors, take_in

MANY = 60


@pytest.fixture(autouse=True)
def in_little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a site sends in some seconds, at once."""
    monkeypatch.setattr(Shares, "take", lambda *_: None)


async def asked(site: Site, content: bytes, run: str) -> ErrorCode | None:
    """What the hub says to an answer: the code of its refusal."""
    try:
        await site.doors.ask(Door.RESULT, content, run=run, step="r1-train", timeout=30)
    except HanseError as error:
        return error.code
    return None


async def written(league: League) -> int:
    """How many of a site's answers to one step are written down, each of as many bytes as a message has."""
    site, run = await league.site("bad"), new_run()
    await league.open("bad", run)
    for _ in range(2):  # the same once more, as who hears no answer
        await asyncio.gather(*(asked(site, b"%d" % number, run) for number in range(MANY)))
    pattern = RESULT.wildcard(project="triage", run=run)
    return len(await league.hub.snapshot(stream_of(RESULT), pattern))


async def test_a_site_fills_no_stream_with_answers_to_one_step(league: League) -> None:
    assert await written(league) == doors.MOST_ANSWERS


@pytest.mark.control("test_a_site_fills_no_stream_with_answers_to_one_step")
async def test_control_where_answers_are_not_counted_all_are_written_down(
    league: League, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "MOST_ANSWERS", MANY)
    assert await written(league) == MANY


async def kept_of_one(clock: VirtualClock) -> int:
    """How often one answer is written down of a site that sends it again whenever the bus has forgotten it."""
    bus, run = MemoryBus(MemoryBroker(clock)), new_run()
    keys = await take_in(bus, "bad", project="triage", run=run, step="r1-train")
    site = Doors(bus, "triage", "bad", keys["bad"])
    async with hub_doors(bus):
        for _ in range(MANY):
            await site.ask(Door.RESULT, b"the same", run=run, step="r1-train")
            await clock.sleep(DUPLICATE_WINDOW_S + 1)
    kept = len(await bus.snapshot(stream_of(RESULT), RESULT.wildcard(project="triage", run=run)))
    await bus.close()
    return kept


@in_virtual_time
async def test_a_site_fills_no_stream_with_one_answer_that_it_sends_again_and_again(clock: VirtualClock) -> None:
    assert await kept_of_one(clock) == 1


@pytest.mark.control("test_a_site_fills_no_stream_with_one_answer_that_it_sends_again_and_again")
@in_virtual_time
async def test_control_where_it_is_not_known_what_is_written_down_it_is_written_each_time(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors.SiteDoors, "_count_answer", lambda *_: Forgetful())
    assert await kept_of_one(clock) == MANY


@pytest.mark.no_attack("an honest site")
@in_virtual_time
async def test_the_same_answer_is_written_down_again_where_the_hub_has_removed_it(clock: VirtualClock) -> None:
    bus, run = MemoryBus(MemoryBroker(clock)), new_run()
    keys = await take_in(bus, "good", project="triage", run=run, step="r1-train")
    site, answers = Doors(bus, "triage", "good", keys["good"]), RESULT.wildcard(project="triage", run=run)
    async with hub_doors(bus):
        for _ in range(2):
            await site.ask(Door.RESULT, b"the same", run=run, step="r1-train")
            assert len(await bus.snapshot(stream_of(RESULT), answers)) == 1
            await bus.purge(stream_of(RESULT), answers)
            await clock.sleep(DUPLICATE_WINDOW_S + 1)
    await bus.close()


class Forgetful(UserDict[str, bool]):
    def __getitem__(self, _: str) -> bool:
        return False


ALLOWED, LARGE = 20_000, b"a" * 1_000


async def of_many_steps(clock: VirtualClock, results: int) -> tuple[int, list[ErrorCode | None]]:
    """Bytes of the answers that are kept of a project many of whose steps are open at once; and what is said to another
    project's site then, and to a site of the first when its steps have closed."""
    bus, runs, last = MemoryBus(MemoryBroker(clock)), [new_run() for _ in range(MANY)], new_run()
    keys = await take_in(bus, "bad", project="triage", run=last, step="r1-train")
    others = await take_in(bus, "good", project="beds", run=last, step="r1-train")
    for run in runs:
        await bus.publish(TASK.of(project="triage", participant="bad", run=run, step="r1-train"), b"open")
    site, other = Doors(bus, "triage", "bad", keys["bad"]), Doors(bus, "beds", "good", others["good"])
    async with hub_doors(bus, results=results):
        for run in runs:
            await asked(Site(bus, site), LARGE, run)  # type: ignore[arg-type]
        triage = RESULT.wildcard(project="triage")
        kept = sum(len(record.data) for record in await bus.snapshot(stream_of(RESULT), triage))
        said = [await asked(Site(bus, other), LARGE, last)]  # type: ignore[arg-type]
        await bus.purge(stream_of(RESULT), triage)
        await clock.sleep(61.0)
        said.append(await asked(Site(bus, site), LARGE, last))  # type: ignore[arg-type]
    await bus.close()
    return kept, said


@in_virtual_time
async def test_an_owner_whose_many_steps_are_open_does_not_fill_the_answers_of_all_projects(
    clock: VirtualClock,
) -> None:
    assert await of_many_steps(clock, ALLOWED) == (ALLOWED, [None, None])


@pytest.mark.control("test_an_owner_whose_many_steps_are_open_does_not_fill_the_answers_of_all_projects")
@in_virtual_time
async def test_control_where_a_projects_answers_are_not_counted_all_of_them_are_kept(clock: VirtualClock) -> None:
    assert (await of_many_steps(clock, 0))[0] == MANY * len(LARGE)


@pytest.mark.no_attack("an honest site")
async def test_a_site_that_lost_its_answer_is_heard_again_and_the_same_answer_always_is(league: League) -> None:
    site, run = await league.site("bad"), new_run()
    await league.open("bad", run)
    told = [await asked(site, b"%d" % number, run) for number in range(doors.MOST_ANSWERS + 1)]
    assert told == [None] * doors.MOST_ANSWERS + [ErrorCode.CONFLICT]
    assert await asked(site, b"0", run) is None


async def told_of(league: League) -> tuple[int, int]:
    """Entries of the audit, and events, after a site's answers to as many runs that never were."""
    site = await league.site("bad")
    codes = await asyncio.gather(*(asked(site, b"late", new_run()) for _ in range(MANY)))
    assert set(codes) == {ErrorCode.GONE}
    await asked(site, b"late", new_run())
    audit = await league.hub.snapshot(stream_of(AUDIT), AUDIT.of(project="triage"))
    return len(audit), len(await league.hub.snapshot(stream_of(EVENT), EVENT.wildcard(project="triage")))


async def test_a_site_does_not_fill_the_audit_with_late_answers_to_runs_that_never_were(league: League) -> None:
    before = len(await league.hub.snapshot(stream_of(AUDIT), AUDIT.of(project="triage")))
    audit, _ = await told_of(league)
    assert audit - before <= sparing.AT_ONCE


@pytest.mark.control("test_a_site_does_not_fill_the_audit_with_late_answers_to_runs_that_never_were")
async def test_control_where_all_is_told_each_of_them_is_in_the_audit_for_good(
    league: League, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(await league.hub.snapshot(stream_of(AUDIT), AUDIT.of(project="triage")))
    monkeypatch.setattr(sparing.Sparing, "due", lambda *_: True)
    audit, events = await told_of(league)
    assert audit - before >= MANY
    assert events >= MANY
