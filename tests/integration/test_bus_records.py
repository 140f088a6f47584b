"""Records on every bus, changed by compare-and-set, and watched."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest

from hanse_fabric.bus.port import Bus
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Message
from hanse_fabric.records import Bucket
from hanse_fabric.subjects import RUNS


class Note(Message):
    schema_id: ClassVar[str] = "hanse.test-note/1"

    text: str
    count: int = 0


@pytest.fixture
def notes(bus: Bus) -> Bucket[Note]:
    return Bucket(bus, RUNS, Note)


async def test_a_record_is_created_once(notes: Bucket[Note], project: str) -> None:
    created = await notes.create(Note(text="a"), project=project, run="r")
    assert await notes.get(project=project, run="r") == created
    with pytest.raises(HanseError) as refusal:
        await notes.create(Note(text="b"), project=project, run="r")
    assert refusal.value.code is ErrorCode.CONFLICT


async def test_an_update_of_a_record_that_changed_is_refused(notes: Bucket[Note], project: str) -> None:
    created = await notes.create(Note(text="a"), project=project, run="r")
    await notes.update(Note(text="b"), created.revision, project=project, run="r")
    with pytest.raises(HanseError) as refusal:
        await notes.update(Note(text="c"), created.revision, project=project, run="r")
    assert refusal.value.code is ErrorCode.CONFLICT


async def test_concurrent_changes_are_all_made(notes: Bucket[Note], project: str) -> None:
    await notes.create(Note(text="a"), project=project, run="r")

    def one_more(note: Note) -> Note:
        return note.model_copy(update={"count": note.count + 1})

    await asyncio.gather(*(notes.change(one_more, project=project, run="r") for _ in range(8)))
    entry = await notes.require(project=project, run="r")
    assert entry.value.count == 8


async def test_a_change_from_what_was_seen_before_loses_nothing_that_others_wrote(
    notes: Bucket[Note], project: str
) -> None:
    seen = await notes.create(Note(text="a"), project=project, run="r")
    await notes.update(Note(text="b"), seen.revision, project=project, run="r")
    changed = await notes.change(lambda note: note.model_copy(update={"count": 1}), seen, project=project, run="r")
    assert changed.value == Note(text="b", count=1)
    again = await notes.change(lambda note: note.model_copy(update={"count": 2}), changed, project=project, run="r")
    assert again == await notes.require(project=project, run="r")
    assert again.value == Note(text="b", count=2)


async def test_a_deleted_record_is_gone_and_can_be_created_again(notes: Bucket[Note], project: str) -> None:
    await notes.create(Note(text="a"), project=project, run="r")
    await notes.delete(project=project, run="r")
    assert await notes.get(project=project, run="r") is None
    assert await notes.list(project=project) == []
    await notes.create(Note(text="b"), project=project, run="r")
    assert [entry.value.text for entry in await notes.list(project=project)] == ["b"]


async def test_a_watch_tells_what_is_there_that_it_caught_up_and_what_changes(
    notes: Bucket[Note], project: str
) -> None:
    created = await notes.create(Note(text="a"), project=project, run="r")
    async with asyncio.timeout(60), notes.watch(project=project) as changes:
        first = await anext(changes)
        assert first is not None
        assert first.value == Note(text="a")
        assert await anext(changes) is None
        await notes.update(Note(text="b"), created.revision, project=project, run="r")
        # Read before the next change: a bucket keeps, and so a watch may give, only the newest.
        second = await anext(changes)
        assert second is not None
        assert second.value == Note(text="b")
        await notes.delete(project=project, run="r")
        third = await anext(changes)
        assert third is not None
        assert third.value is None
        assert third.tokens == {"project": project, "run": "r"}


async def test_a_watch_of_nothing_has_caught_up_at_once(notes: Bucket[Note], project: str) -> None:
    async with asyncio.timeout(60), notes.watch(project=project) as changes:
        assert await anext(changes) is None


async def test_a_key_that_would_widen_the_subject_is_refused(notes: Bucket[Note]) -> None:
    for bad in ("*", ">", "a.b", "", "a b"):
        with pytest.raises(HanseError) as refusal:
            await notes.get(project=bad, run="r")
        assert refusal.value.code is ErrorCode.INVALID_INPUT
