"""Models that were fetched, by digest. What lies here can be fetched again, so nothing is synced to the disk.

What came of a model stays while the rest is missing. The process after one that was killed finds it, holds its whole
leaves against their digests, and goes on behind them.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from hanse_fabric.durable import space_errors
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ObjectRef
from hanse_fabric.store.transfer import Came
from hanse_fabric.tensors.digest import LEAF_BYTES, Digester, digest_bytes, digest_file, whole_leaves
from hanse_fabric.tensors.refs import holds

KEPT = 2
"""The model of a round, which is evaluated and then trained from, and the one before it."""
_SPARE, _PARTIAL = "spare", ".part"
_TRANSIENT = (ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT, ErrorCode.GONE)
"""After which what has come is kept."""


Download = Callable[[Path, Came], Awaitable[None]]
"""Fetches into a file what has not come yet."""
Rebuild = Callable[[Path], Awaitable[None]]
"""Makes a file of what is here already."""
_LOG = logging.getLogger(__name__)


class ModelCache:
    """The newest `kept` models in one folder. A file that was not written by this process is verified before use.
    Those who ask at the same time wait for each other."""

    def __init__(self, folder: Path, *, kept: int = KEPT) -> None:
        self._folder = folder
        self._kept = kept
        self._turn = asyncio.Lock()
        self._verified: OrderedDict[str, Path] = OrderedDict()

    async def get(self, ref: ObjectRef, download: Download, rebuild: Rebuild | None = None) -> Path:
        """The file of `ref`, downloaded where it is not here.

        Args:
            rebuild: is tried first. Where that fails, or makes anything else than `ref`, the file is downloaded.

        Raises:
            HanseError: TAMPERED when the content is not the announced one; NO_SPACE; what `download` raises.
        """
        async with self._turn:
            return await self._get(ref, download, rebuild)

    def has(self, digest: str) -> bool:
        """Whether a file of this name is here; what is in it was perhaps not verified yet."""
        return (self._folder / digest).exists()

    async def find(self, digest: str) -> Path:
        """The file with this digest, verified.

        Raises:
            HanseError: NOT_FOUND where there is none; TAMPERED where it has other content: then it is removed.
        """
        path = self._folder / digest
        if digest not in self._verified or not path.exists():
            try:
                found, _ = await asyncio.to_thread(digest_file, path)
            except FileNotFoundError:
                raise HanseError(ErrorCode.NOT_FOUND, f"model {digest}: it is not here any more") from None
            if found != digest:
                path.unlink(missing_ok=True)
                raise HanseError(ErrorCode.TAMPERED, f"model {digest}: the file at the site was changed")
        return path

    def clear(self) -> None:
        """Remove all files."""
        self._verified.clear()
        for path in self._folder.glob("*"):
            path.unlink(missing_ok=True)

    async def _get(self, ref: ObjectRef, download: Download, rebuild: Rebuild | None) -> Path:
        path = self._folder / ref.digest
        if ref.digest in self._verified and path.exists():
            self._verified.move_to_end(ref.digest)
        elif ref.inline is not None:
            self._write(ref, ref.inline, path)  # what a message holds is written sooner than a thread is woken
        else:
            held = await asyncio.to_thread(holds, path, ref)
            if not held and not (rebuild is not None and await self._rebuilt(ref, path, rebuild)):
                await self._download(ref, path, download)
            await asyncio.to_thread(self._admit, ref, path)
        return path

    def _write(self, ref: ObjectRef, data: bytes, path: Path) -> None:
        """Keep what came with the reference."""
        if (digest_bytes(data), len(data)) != ((ref.digest, ref.leaves), ref.size):
            raise _tampered(ref)
        partial = self._partial(path)
        try:
            with space_errors(self._folder):
                self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                partial.write_bytes(data)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        self._admit(ref, path)

    def _admit(self, ref: ObjectRef, path: Path) -> None:
        self._verified[ref.digest] = path
        while len(self._verified) > self._kept:
            self._verified.popitem(last=False)
        self._prune()

    def _partial(self, path: Path) -> Path:
        return path.with_name(f"{path.name}.{os.getpid()}.part")

    async def _rebuilt(self, ref: ObjectRef, path: Path, rebuild: Rebuild) -> bool:
        """Whether the file was made of what is here, and is the announced one."""
        partial = self._partial(path)
        try:
            await rebuild(partial)
            if not await asyncio.to_thread(holds, partial, ref):
                raise _tampered(ref)
            partial.replace(path)
        except HanseError as error:
            if error.code in (*_TRANSIENT[:2], ErrorCode.NO_SPACE, ErrorCode.CANCELLED):
                raise
            _LOG.warning("a model is fetched whole: %s", error.message)
            return False
        finally:
            partial.unlink(missing_ok=True)
        return True

    async def _download(self, ref: ObjectRef, path: Path, download: Download) -> None:
        partial, came = path.with_name(f"{path.name}{_PARTIAL}"), Came(digester=Digester())
        try:
            with space_errors(self._folder):
                self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                if partial.exists():
                    came.bytes = await asyncio.to_thread(_came, partial, ref)
                else:
                    with suppress(FileNotFoundError):
                        (self._folder / _SPARE).replace(partial)  # written over: its pages are in memory already
                resumed = came.bytes
                await download(partial, came)
            digested = came.digested
            if digested is None:
                held = await asyncio.to_thread(holds, partial, ref)
            else:
                held = (came.bytes, digested) == (ref.size, (ref.digest, ref.leaves))
            if resumed and not held:
                # Behind its whole leaves there was no beginning of the next one, but what a file before has left.
                came.bytes = LEAF_BYTES * await asyncio.to_thread(whole_leaves, partial, ref.leaves)
                await download(partial, came)
                held = await asyncio.to_thread(holds, partial, ref)
            if not held:
                raise _tampered(ref)
            partial.replace(path)
        except HanseError as error:
            if error.code not in _TRANSIENT:
                partial.unlink(missing_ok=True)
            raise
        finally:
            came.stop()  # a thread that was left behind writes to no file that another goes on with

    def _prune(self) -> None:
        """Remove the models that are no longer kept, but one file, which the next download is written over."""
        spare = self._folder / _SPARE
        for path in self._folder.iterdir():
            if path.name in self._verified or path == spare:
                continue
            with suppress(FileNotFoundError):
                if spare.exists():
                    path.unlink()
                else:
                    path.replace(spare)


def _came(partial: Path, ref: ObjectRef) -> int:
    """How many bytes of a model came before, as far as its file tells: its whole leaves, and what is behind them in a
    file that is shorter than the model."""
    whole, size = LEAF_BYTES * whole_leaves(partial, ref.leaves), partial.stat().st_size
    return size if whole <= size < min(whole + LEAF_BYTES, ref.size) else min(whole, ref.size)


def _tampered(ref: ObjectRef) -> HanseError:
    return HanseError(
        ErrorCode.TAMPERED, f"model {ref.digest}: what was fetched has another digest or size",
        hint="the object in the store was changed; tell the operator",
    )  # fmt: skip
