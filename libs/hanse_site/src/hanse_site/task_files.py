"""Files that a hub's tasks name, fetched and kept: models, by what has changed where that is less, and what algorithms
need beside them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hanse_fabric.clock import Clock
from hanse_fabric.doors.asking import Doors
from hanse_fabric.durable import space_errors
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Delta, ObjectRef, Task, TaskKind
from hanse_fabric.messages.objects import MOST_DELTAS
from hanse_fabric.store.transfer import Came
from hanse_fabric.telemetry.catalogue import SITE_BYTES
from hanse_site.cache import KEPT, ModelCache, Rebuild
from hanse_site.remote import ask_link
from hanse_site.trying import keep_trying

if TYPE_CHECKING:
    from hanse_fabric.store.transfer import Transfer

OBJECTS_KEPT = 24
"""Objects of studies: several steps are under way at once, each with a few."""
RECEIVED = ("cache", "extras", "objects")
"""Folders of a home, of what was fetched: models, what algorithms need beside them, and objects of studies."""
DELTAS = "deltas"
"""Folder of a home, of what leads to a model from the one before, until it has."""
Applied = Callable[[Path, Path, Path], tuple[str, tuple[str, ...]]]
"""Makes of a file, by a delta, a third, and returns its digest and leaves. Blocks."""


class TaskFiles:
    """Of a participant's home."""

    def __init__(self, home: Path, doors: Doors, transfer: Transfer, clock: Clock) -> None:
        self._doors, self._transfer, self._clock = doors, transfer, clock
        models, extras, objects = (home / name for name in RECEIVED)
        self._models, self._extras = ModelCache(models), ModelCache(extras)
        self._objects = ModelCache(objects, kept=OBJECTS_KEPT)
        self._deltas = ModelCache(home / DELTAS, kept=MOST_DELTAS)

    def to_fetch(self, task: Task) -> tuple[ObjectRef, ...]:
        """What leads to the task's model from one that is here; or the model."""
        ways = tuple(delta.ref for delta in self._way(task))
        return ways or (() if task.model is None else (task.model,))

    async def fetch(
        self, task: Task, *, seconds: float = 300.0, apply: Applied | None = None,
        whole: Callable[[], Awaitable[None]] | None = None,
    ) -> Path | None:  # fmt: skip
        """The task's model as a file, verified against its digest; None where the task has none.

        The file is in a cache and must not be changed; it stays while the newest few models are kept.

        Args:
            apply: applies a delta; with it, a model is made of an older one that is here, where the task names a way.
            whole: is called before the whole model is fetched after all, where that was tried.

        Raises:
            HanseError: TAMPERED, NO_SPACE, TOO_LARGE, or UNAVAILABLE when `seconds` passed without success.
        """
        if task.model is None:
            return None
        way = () if apply is None else self._way(task)
        if apply is None or not way:
            return await self._fetch(task, "model", task.model, self._models, seconds)
        try:
            return await self._fetch(
                task, "model", task.model, self._models, seconds,
                rebuild=lambda path: self._rebuild(task, way, apply, path, seconds), whole=whole,
            )  # fmt: skip
        finally:
            await asyncio.to_thread(self._deltas.clear)

    def _way(self, task: Task) -> tuple[Delta, ...]:
        """The deltas by which the task's model is made of one that is here; none where there is no such way, or where
        the model itself is here, or no larger."""
        model = task.model
        if model is None or not task.deltas or model.inline is not None or self._models.has(model.digest):
            return ()
        makes, found = {delta.makes: delta for delta in task.deltas}, list[Delta]()
        while (delta := makes.pop(found[0].base if found else model.digest, None)) is not None:
            found.insert(0, delta)
            if sum(each.ref.size for each in found) >= model.size:
                return ()
            if self._models.has(delta.base):
                return tuple(found)
        return ()

    async def _rebuild(self, task: Task, way: tuple[Delta, ...], apply: Applied, path: Path, seconds: float) -> None:
        """Make the model of one that is here."""
        base, made = await self._models.find(way[0].base), path
        for number, delta in enumerate(way):
            file = await self._fetch(task, f"deltas.{number}", delta.ref, self._deltas, seconds)
            made = path if delta is way[-1] else path.with_name(f"{path.name}.{number}")
            try:
                with space_errors(path.parent):
                    digest, _ = await asyncio.to_thread(apply, base, file, made)
            finally:
                if number:
                    base.unlink(missing_ok=True)
            if digest != delta.makes:
                made.unlink(missing_ok=True)
                raise HanseError(
                    ErrorCode.TAMPERED, f"delta {delta.ref.digest}: it makes {digest}, {delta.makes} was announced"
                )
            base = made

    async def fetch_extras(self, task: Task, *, seconds: float = 300.0) -> dict[str, Path]:
        """What the algorithm needs beside the model, as files by name; as `fetch`.

        Raises:
            HanseError: as `fetch`; INVALID_INPUT for more than are kept.
        """
        extras = task.extras or {}
        study = task.kind is TaskKind.STUDY
        cache, most = (self._objects, OBJECTS_KEPT // 3) if study else (self._extras, KEPT)
        if len(extras) > most:
            raise HanseError(
                ErrorCode.INVALID_INPUT, f"task {task.id}.extras: {len(extras)} are more than {most}",
                hint="upgrade the datapod",
            )  # fmt: skip
        return {name: await self._fetch(task, f"extras.{name}", ref, cache, seconds) for name, ref in extras.items()}

    async def _fetch(
        self, task: Task, what: str, ref: ObjectRef, cache: ModelCache, seconds: float, *,
        rebuild: Rebuild | None = None, whole: Callable[[], Awaitable[None]] | None = None,
    ) -> Path:  # fmt: skip
        async def download(path: Path, came: Came) -> None:
            if whole is not None and not told:
                told.append(ref)
                await whole()
            if ref.key is None:
                raise HanseError(ErrorCode.INVALID_INPUT, f"task {task.id}.{what}: neither inline nor in the store")
            before = came.bytes
            if before == ref.size:
                return
            link = await ask_link(self._doors, task, ref.key)
            try:
                await asyncio.to_thread(self._transfer.fetch, link.url, path, limit=ref.size, came=came)
            finally:
                SITE_BYTES.add(max(came.bytes - before, 0), direction="down", carrier="store")

        told = list[ObjectRef]()
        if ref.inline is not None:
            SITE_BYTES.add(ref.size, direction="down", carrier="bus")
        return await cache.get(
            ref, lambda path, came: keep_trying(lambda: download(path, came), seconds, self._clock), rebuild
        )  # fmt: skip
