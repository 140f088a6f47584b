"""The byte ledger counts to a run only what was found open, loses nothing that cannot be written, and adds up."""

from __future__ import annotations

from typing import Any

import pytest

from hanse_fabric.bus.broker import MemoryBroker
from hanse_fabric.bus.memory import MemoryBus
from hanse_fabric.doors.byte_ledger import ByteLedger, Passed, by_round, ledger_of
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import LinkBytes, SentBytes
from hanse_fabric.queue import stream_of
from hanse_fabric.subjects import SENT_BYTES
from hanse_fabric.telemetry.catalogue import LINK_BYTES

RUN = "a" * 12
ONE = Passed(bus_up=3, store_down=5)
WRITTEN = LinkBytes(**ONE._asdict())


async def _told(bus: MemoryBus) -> dict[int, dict[str, LinkBytes]]:
    found = await bus.snapshot(stream_of(SENT_BYTES), SENT_BYTES.wildcard(project="triage", run=RUN))
    return by_round(SentBytes.decode(record.data) for record in found)


def _counted() -> dict[tuple[str, ...], float]:
    return {tuple(labels.values()): value for _, labels, value in LINK_BYTES.samples()}


async def test_what_several_processes_counted_is_added_up_by_round_and_site() -> None:
    broker = MemoryBroker()
    first, second = MemoryBus(broker), MemoryBus(broker)
    for bus in (first, second, second):
        ledger = ledger_of(bus)
        for step in ("r0-initialize", "r3-train", "r3-train-a2"):
            ledger.opened("triage", "north", RUN, step)
            ledger.count("triage", "north", ONE, run=RUN, step=step)
        await ledger.flush(bus)
    assert ledger_of(first) is not ledger_of(second)
    assert await _told(first) == {
        0: {"north": WRITTEN + WRITTEN + WRITTEN},
        3: {"north": LinkBytes(bus_up=18, store_down=30)},
    }


async def test_a_site_that_names_another_run_counts_to_none() -> None:
    bus = MemoryBus()
    ledger, before = ledger_of(bus), _counted()
    ledger.opened("triage", "north", RUN, "r1-train")
    for participant, run, step in (
        ("south", RUN, "r1-train"), ("north", "b" * 12, "r1-train"), ("north", RUN, "r2-train"), ("north", None, None),
    ):  # fmt: skip
        ledger.count("triage", participant, ONE, run=run, step=step)
    await ledger.flush(bus)
    assert await _told(bus) == {}
    grown = {labels: size - before.get(labels, 0) for labels, size in _counted().items()}
    assert {labels: size for labels, size in grown.items() if size} == {
        ("bus", "up", "else"): 12, ("store", "down", "else"): 20
    }  # fmt: skip


async def test_what_cannot_be_written_is_written_with_what_comes_next(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = MemoryBus()
    ledger = ByteLedger()
    ledger.opened("triage", "north", RUN, "r1-train")
    ledger.count("triage", "north", ONE, run=RUN, step="r1-train")
    with monkeypatch.context() as patched:

        async def away(*_: Any, **__: Any) -> int:
            raise HanseError(ErrorCode.UNAVAILABLE, "away")

        patched.setattr(bus, "publish", away)
        await ledger.flush(bus)
    assert await _told(bus) == {}
    ledger.count("triage", "north", ONE, run=RUN, step="r1-train")
    await ledger.flush(bus)
    await ledger.flush(bus)
    assert await _told(bus) == {1: {"north": WRITTEN + WRITTEN}}
