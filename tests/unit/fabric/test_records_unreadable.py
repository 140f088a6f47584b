"""A record that this release cannot read."""

from __future__ import annotations

import logging
from typing import ClassVar

import pytest

from hanse_fabric.bus.memory import MemoryBus
from hanse_fabric.messages.base import Message
from hanse_fabric.records import Bucket
from hanse_fabric.subjects import RUNS


class Mark(Message):
    schema_id: ClassVar[str] = "hanse.mark/1"
    text: str


class NewerMark(Message):
    schema_id: ClassVar[str] = "hanse.mark/2"
    text: str


async def test_a_watch_passes_over_a_record_of_a_newer_release_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    bus = MemoryBus()
    await Bucket(bus, RUNS, NewerMark).create(NewerMark(text="new"), project="p", run="newer")
    await Bucket(bus, RUNS, Mark).create(Mark(text="old"), project="p", run="known")
    with caplog.at_level(logging.ERROR):
        async with Bucket(bus, RUNS, Mark).watch() as changes:
            first = await anext(changes)
            assert first is not None
            assert first.value == Mark(text="old")
            assert await anext(changes) is None
    assert "hanse.mark/2" in caplog.text
