"""How many participants are in which state, and who has gone silent."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime, timedelta

from clocks import HandClock
from hanse_coordinator.runs.roster import Roster
from hanse_fabric.bus.memory import MemoryBus
from hanse_fabric.messages import Presence
from hanse_fabric.messages.participants import ParticipantRecord
from hanse_fabric.records import Bucket
from hanse_fabric.subjects import PARTICIPANTS, PRESENCE
from hanse_fabric.telemetry import catalogue

NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def paused(bus: MemoryBus, name: str, *, working_on: str | None) -> None:
    sign = Presence(
        project="states", participant=name, version="0.1.0", sent_at=NOW, working_on=working_on, paused=True
    )  # fmt: skip
    await bus.publish(PRESENCE.of(project="states", participant=name), sign.encode())


async def test_participants_are_shown_by_state_and_the_silent_by_name() -> None:
    clock, bus = HandClock(NOW), MemoryBus()
    bucket = Bucket(bus, PARTICIPANTS, ParticipantRecord)
    for name in ("north", "south", "east", "west", "gone"):
        record = ParticipantRecord(
            project="states", participant=name, public_key=base64.b64encode(b"k" * 32), bus_key="U", enrolled_at=NOW,
            revoked=name == "gone",
        )  # fmt: skip
        await bucket.create(record, project="states", participant=name)
    for name, ago, run in (("east", 600, None), ("north", 0, None), ("south", 10, "a" * 12), ("gone", 0, None)):
        sent = NOW - timedelta(seconds=ago)
        sign = Presence(project="states", participant=name, version="0.1.0", sent_at=sent, working_on=run)
        await bus.publish(PRESENCE.of(project="states", participant=name), sign.encode())
    roster = Roster(bus, bucket, clock)
    watching = asyncio.create_task(roster.watch())
    try:
        async with asyncio.timeout(30):
            await roster.ready.wait()
            while roster.present("states") != ("north", "south"):
                await roster.changed()
        roster.set_gauges()
        states = {
            labels["state"]: value
            for _, labels, value in catalogue.PARTICIPANTS.samples()
            if labels["project"] == "states"
        }
        assert states == {"online": 1, "busy": 1, "silent": 1, "unseen": 1, "revoked": 1}
        silent = {labels["participant"]: value for _, labels, value in catalogue.SILENT_SECONDS.samples()}
        assert silent == {"east": 600}
        assert roster.absent("states") == ["east", "west"]
        # One that is paused begins nothing, and finishes what it has in hand.
        await paused(bus, "north", working_on="a" * 12)
        while roster.present("states") != ("south",):  # noqa: ASYNC110 - of what the bus brings
            await asyncio.sleep(0)
        assert [roster.rests("states", "north", run=run * 12) for run in "ab"] == [False, True]
        assert not roster.rests("states", "south", run="b" * 12)
        await paused(bus, "north", working_on=None)
        while not roster.rests("states", "north", run="a" * 12):  # noqa: ASYNC110 - of what the bus brings
            await asyncio.sleep(0)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
