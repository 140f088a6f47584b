"""Backups of the bus in an object store or a folder: made, listed, thinned out, checked, brought back.

A hub's state is spread over many streams, and a run writes to them while they are saved. The journals are saved first:
what an entry of a journal refers to (results, updates, sums, records) was written before it, so it is in what is saved
after. What is newer than the journal is repeated without harm: sites answer a task that comes again with the same
bytes. Only messages that a run removed in between could be missing. So where a journal grew while the rest was saved,
everything is saved again, a few times; the manifest says so where it grew during the last attempt, too.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, field_validator

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.frozen import Time
from hanse_fabric.messages.base import Frozen, Message
from hanse_fabric.names import Digest
from hanse_fabric.state import RELEASE, STATE_STREAM, STATE_VERSION, refuse_newer
from hanse_fabric.store.port import ObjectStore
from hanse_fabric.strict_json import LARGE
from hanse_fabric.subjects import EXCHANGE, JOURNAL, PRESENCE, PROGRESS, RESULT, STREAMS, UPDATE
from hanse_fabric.tensors.digest import digest_file
from hanse_operations.backup.snapshots import Link, Snapshot, bring_back, is_back, remove, save, state_of

PREFIX = "backups/"
_MANIFEST = "manifest.json"
_JOURNAL = JOURNAL.stream.name if JOURNAL.stream else ""
_PASSES = 3
_MOST_MANIFEST = 8 << 20
_MOST_STREAM = 1 << 46
_LOG = logging.getLogger(__name__)

ORDER = (_JOURNAL, *(stream.name for stream in STREAMS if stream.name != _JOURNAL))
"""In which streams are saved."""

_WITHOUT_A_HUB = {STATE_STREAM.name} | {
    row.stream.name for row in (PRESENCE, PROGRESS, RESULT, UPDATE, EXCHANGE) if row.stream is not None
}
"""Streams that may hold messages although no hub has run: the state job writes the version, and the first coordinator
that is up what sites that stayed connected say."""


class SavedStream(Frozen):
    """One stream's file."""

    name: str
    config: dict[str, Any]
    state: dict[str, Any]
    size: int = Field(ge=0)
    digest: Digest

    @field_validator("name")
    @classmethod
    def _of_a_hub(cls, name: str) -> str:
        if name not in ORDER:
            raise ValueError("a stream of a hub is expected")
        return name


class Manifest(Message):
    """What a backup holds. It is written last: without it there is no backup.

    Attributes:
        moved: whether runs went on while it was made, to the last pass.
    """

    schema_id: ClassVar[str] = "hanse.backup/1"
    limits = LARGE

    name: str
    at: Time
    release: str
    state_version: int
    moved: bool
    streams: tuple[SavedStream, ...]

    @property
    def messages(self) -> int:
        """Of all streams."""
        return sum(int(stream.state.get("messages", 0)) for stream in self.streams)


async def make(link: Link, store: ObjectStore, now: datetime) -> Manifest:
    """Save all streams.

    Raises:
        HanseError: UNAVAILABLE, FORBIDDEN or NO_SPACE from bus, store or disk.
    """
    name = now.strftime("%Y%m%dT%H%M%SZ")
    for number in range(1, _PASSES + 1):
        with tempfile.TemporaryDirectory(prefix="hanse-backup-") as folder:
            saved = await _pass(link, Path(folder))
            after = await state_of(link, _JOURNAL) or {}
            before = next((one.state for one in saved if one.name == _JOURNAL), {})
            moved = before.get("last_seq") != after.get("last_seq")
            if moved and number < _PASSES:
                _LOG.info("runs went on meanwhile: saved again", extra={"pass": number})
                continue
            manifest = Manifest(
                name=name, at=now, release=RELEASE, state_version=STATE_VERSION, moved=moved, streams=tuple(saved)
            )
            await asyncio.to_thread(_store, store, manifest, Path(folder))
            return manifest
    raise HanseError(ErrorCode.INTERNAL, "backup: no pass was the last one")


async def _pass(link: Link, folder: Path) -> list[SavedStream]:
    saved = []
    for stream in ORDER:
        found = await save(link, stream, folder / stream)
        if found is not None:
            saved.append(
                SavedStream(name=stream, config=found.config, state=found.state, size=found.size, digest=found.digest)
            )
    if not saved:
        raise HanseError(
            ErrorCode.NOT_FOUND,
            "bus: it has no stream of a hub",
            hint="run `python -m hanse_operations state` first",
        )
    return saved


def _store(store: ObjectStore, manifest: Manifest, folder: Path) -> None:
    for stream in manifest.streams:
        store.put_file(_key(manifest.name, stream.name), folder / stream.name)
    store.put(_key(manifest.name, _MANIFEST), manifest.encode())


def listed(store: ObjectStore) -> list[str]:
    """The names of whole backups, oldest first."""
    keys = store.keys(PREFIX)
    return sorted(key.split("/")[1] for key in keys if key.count("/") == 2 and key.endswith(f"/{_MANIFEST}"))


def thin_out(store: ObjectStore, keep: int) -> list[str]:
    """Remove all but the newest `keep` backups, and remains of older ones that were cut short; returns their names."""
    kept = listed(store)[-keep:]
    first = kept[0] if kept else ""
    stale: dict[str, list[str]] = {}
    for key in store.keys(PREFIX):
        if key.count("/") == 2 and key.split("/")[1] < first:
            stale.setdefault(key.split("/")[1], []).append(key)
    for keys in stale.values():
        for key in sorted(keys, key=lambda one: not one.endswith(_MANIFEST)):  # the manifest first
            store.delete(key)
    return sorted(stale)


def read_manifest(store: ObjectStore, name: str = "") -> Manifest:
    """The manifest of a backup, the newest by default.

    Raises:
        HanseError: NOT_FOUND; UNKNOWN_SCHEMA when a newer release made it.
    """
    names = listed(store)
    if not names or (name and name not in names):
        there = f"there are {', '.join(names)}" if names else "there is none"
        raise HanseError(ErrorCode.NOT_FOUND, f"backup {name or '(newest)'}: not found; {there}")
    chosen = name or names[-1]
    manifest = Manifest.decode(store.get(_key(chosen, _MANIFEST), limit=_MOST_MANIFEST))
    refuse_newer(manifest.state_version, manifest.release)
    return manifest


async def restore(
    connect: Callable[[], AbstractAsyncContextManager[Link]],
    store: ObjectStore,
    manifest: Manifest,
    *,
    force: bool = False,
    replicas: int | None = None,
) -> None:
    """Bring all streams of a backup back. Nothing is touched before every file has been fetched and checked.

    The stream with the state's version is removed first and restored last, because services wait while it is missing.
    So no service works on a half restored state when this is cut short. Run again, it keeps what is back already.

    Args:
        connect: opens a connection with the restorer's credentials.
        force: replace streams that hold messages.
        replicas: copies of each stream in the cluster; None: as they were.

    Raises:
        HanseError: TAMPERED when a file is not what was saved; CONFLICT when streams hold messages and `force` is not
            given; UNAVAILABLE from bus or store.
    """
    with tempfile.TemporaryDirectory(prefix="hanse-restore-") as name:
        folder = Path(name)
        await asyncio.to_thread(_fetch, store, manifest, folder)
        async with connect() as link:
            if not force:
                await _refuse_full(link, manifest)
            await remove(link, STATE_STREAM.name)
            for stream in sorted(manifest.streams, key=lambda one: one.name == STATE_STREAM.name):
                config = stream.config if replicas is None else stream.config | {"num_replicas": replicas}
                snapshot = Snapshot(config, stream.state, stream.size, stream.digest)
                await bring_back(link, stream.name, snapshot, folder / stream.name)


def _fetch(store: ObjectStore, manifest: Manifest, folder: Path) -> None:
    for stream in manifest.streams:
        path = folder / stream.name
        store.get_file(_key(manifest.name, stream.name), path, limit=_MOST_STREAM)
        if path.stat().st_size != stream.size or digest_file(path)[0] != stream.digest:
            raise HanseError(
                ErrorCode.TAMPERED,
                f"backup {manifest.name}: {stream.name} is not the file that was saved",
                hint="take another backup: --backup NAME",
            )


async def _refuse_full(link: Link, manifest: Manifest) -> None:
    full = []
    for stream in manifest.streams:
        state = await state_of(link, stream.name)
        if state is None or not state.get("messages") or stream.name in _WITHOUT_A_HUB:
            continue
        if not is_back(state, stream.state):
            full.append(f"{stream.name} ({state['messages']} messages)")
    if full:
        raise HanseError(
            ErrorCode.CONFLICT,
            f"bus: streams hold messages already: {', '.join(full)}",
            hint="restore into an empty bus; --force replaces what is there, for good",
        )


def _key(name: str, file: str) -> str:
    return f"{PREFIX}{name}/{file}"
