"""A file that goes to the object store while it is being written, leaf by leaf; nothing of it touches a disk."""

from __future__ import annotations

import hashlib
import io
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.objects import ObjectRef
from hanse_fabric.store.port import ObjectStore
from hanse_fabric.tensors.digest import LEAF_BYTES, combine_leaves

_PARTS_AT_ONCE = 2

Part = tuple[int, str, str]
"""Its number from 1, ETag, digest."""


class Upload(io.RawIOBase):
    """What is written becomes an object under `key` at `finish`, or nothing does.

    At most `_PARTS_AT_ONCE` + 1 leaves are in memory. A store that was killed may keep parts of an upload that nobody
    closes; it removes them by its own rule for unfinished uploads.

    Args:
        stop: gives up (CANCELLED) at the next leaf after it is set.
    """

    def __init__(self, store: ObjectStore, key: str, stop: threading.Event) -> None:
        super().__init__()
        self._store, self._key, self._stop = store, key, stop
        self._id = store.open_upload(key)
        self._threads = ThreadPoolExecutor(_PARTS_AT_ONCE, "mask-part")
        self._pending: deque[Future[Part]] = deque()
        self._parts: list[Part] = []
        self._leaf = bytearray()
        self._size = 0
        self._finished = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        """Take bytes in file order; waits while enough leaves are on their way."""
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            taken = view[done : done + LEAF_BYTES - len(self._leaf)]
            self._leaf += taken
            done += len(taken)
            if len(self._leaf) == LEAF_BYTES:
                self._send()
        self._size += len(view)
        return len(view)

    def finish(self) -> ObjectRef:
        """Send what is left and compose the object."""
        if self._leaf or not self._size:
            self._send()
        while self._pending:
            self._parts.append(self._pending.popleft().result())
        self._store.close_upload(self._key, self._id, [(number, etag) for number, etag, _ in self._parts])
        self._finished = True
        leaves = tuple(digest for _, _, digest in self._parts)
        return ObjectRef(
            digest=combine_leaves(leaves), size=self._size, leaves=leaves if len(leaves) > 1 else (), key=self._key
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
        if not self._finished:
            self._store.abort_upload(self._key, self._id)
        self.close()

    def _send(self) -> None:
        if self._stop.is_set():
            raise HanseError(ErrorCode.CANCELLED, f"object {self._key}: the compensator stops")
        if len(self._pending) == _PARTS_AT_ONCE:
            self._parts.append(self._pending.popleft().result())
        number = len(self._parts) + len(self._pending) + 1
        self._pending.append(self._threads.submit(self._put, number, bytes(self._leaf)))
        self._leaf.clear()

    def _put(self, number: int, leaf: bytes) -> Part:
        etag = self._store.put_part(self._key, self._id, number, leaf)
        return number, etag, hashlib.sha256(leaf).hexdigest()
