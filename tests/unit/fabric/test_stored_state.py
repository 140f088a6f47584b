"""The version of the stored state: migrations in order, cut short and side by side, and a downgrade refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from hanse_fabric.bus.memory import MemoryBus
from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import SystemClock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.state import StateRecord
from hanse_fabric.state import STATE_VERSION, check_state, read_state, write_state
from hanse_fabric.subjects import AUDIT, STATE
from hanse_operations.state.migrations import MIGRATIONS, Migration, migrate

CLOCK = SystemClock()


def noting(to: int) -> Migration:
    """A migration that leaves a trace on the bus."""

    async def run(bus: Bus) -> None:
        await bus.publish(AUDIT.of(project="p"), str(to).encode())

    return Migration(to, f"writes {to}", run)


def failing(to: int) -> Migration:
    async def run(bus: Bus) -> None:
        raise HanseError(ErrorCode.UNAVAILABLE, "cut short")

    return Migration(to, "fails", run)


async def traces(bus: Bus) -> list[bytes]:
    assert AUDIT.stream is not None
    return [record.data for record in await bus.snapshot(AUDIT.stream, AUDIT.wildcard())]


async def stored(bus: Bus) -> int:
    entry = await read_state(bus)
    assert entry is not None
    return entry.value.version


async def test_this_release_has_a_migration_for_each_of_its_versions() -> None:
    bus = MemoryBus()
    assert await migrate(bus, CLOCK) == len(MIGRATIONS)
    assert await check_state(bus) == STATE_VERSION


async def test_state_from_before_versions_were_written_is_version_one() -> None:
    assert await check_state(MemoryBus(), known=1) == 1


async def test_migrations_run_in_order_and_once() -> None:
    bus = MemoryBus()
    assert await migrate(bus, CLOCK, (noting(2),), 2) == 1
    assert await migrate(bus, CLOCK, (noting(2), noting(3), noting(4)), 4) == 2
    assert await migrate(bus, CLOCK, (noting(2), noting(3), noting(4)), 4) == 0
    assert await traces(bus) == [b"2", b"3", b"4"]
    assert await stored(bus) == 4


async def test_a_migration_that_was_cut_short_goes_on_where_it_stopped() -> None:
    bus = MemoryBus()
    with pytest.raises(HanseError, match="cut short"):
        await migrate(bus, CLOCK, (noting(2), failing(3)), 3)
    assert await stored(bus) == 2
    assert await migrate(bus, CLOCK, (noting(2), noting(3)), 3) == 1
    assert await traces(bus) == [b"2", b"3"]


async def test_a_migration_fails_when_another_job_has_migrated_meanwhile() -> None:
    bus = MemoryBus()

    async def other(bus: Bus) -> None:
        await migrate(bus, CLOCK, (noting(2),), 2)

    with pytest.raises(HanseError) as refusal:
        await migrate(bus, CLOCK, (Migration(2, "is overtaken", other),), 2)
    assert refusal.value.code is ErrorCode.CONFLICT
    assert await migrate(bus, CLOCK, (noting(2),), 2) == 0


async def _check(bus: Bus) -> None:
    await check_state(bus, known=2)


async def _migrate(bus: Bus) -> None:
    await migrate(bus, CLOCK, (noting(2),), 2)


@pytest.mark.parametrize("attempt", [_check, _migrate])
async def test_newer_state_is_refused_with_both_versions_and_what_to_do(
    attempt: Callable[[Bus], Awaitable[None]],
) -> None:
    bus = MemoryBus()
    await write_state(bus, StateRecord(version=3, release="9.9.0", at=CLOCK.now()), None)
    with pytest.raises(HanseError, match=r"version 3, written by release 9\.9\.0.*up to 2") as refusal:
        await attempt(bus)
    assert refusal.value.code is ErrorCode.UNKNOWN_SCHEMA
    assert "backup" in refusal.value.hint
    assert await traces(bus) == []


async def test_a_service_waits_for_a_migration_that_has_not_run() -> None:
    bus = MemoryBus()
    await migrate(bus, CLOCK, (), 1)
    with pytest.raises(HanseError, match="version 1") as refusal:
        await check_state(bus, known=2)
    assert refusal.value.code is ErrorCode.UNAVAILABLE


async def test_a_gap_in_the_migrations_is_a_defect() -> None:
    with pytest.raises(HanseError) as refusal:
        await migrate(MemoryBus(), CLOCK, (noting(3),), 3)
    assert refusal.value.code is ErrorCode.INTERNAL


async def test_a_damaged_record_is_named_and_passed_over_by_services_and_refused_by_the_state_job(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bus = MemoryBus()
    await bus.publish(STATE.of(name="version"), b'{"stream":"HANSE_PROGRESS","seq":7}')
    assert await check_state(bus) == STATE_VERSION
    assert "record $KV.hanse_state.version cannot be read" in caplog.text
    with pytest.raises(HanseError, match=r"record .KV\.hanse_state\.version cannot be read"):
        await migrate(bus, CLOCK)


async def test_a_record_of_a_newer_form_stops_a_service() -> None:
    bus = MemoryBus()
    await bus.publish(STATE.of(name="version"), b'{"schema":"hanse.state_record/9","version":9}')
    with pytest.raises(HanseError) as refused:
        await check_state(bus)
    assert refused.value.code is ErrorCode.UNKNOWN_SCHEMA
