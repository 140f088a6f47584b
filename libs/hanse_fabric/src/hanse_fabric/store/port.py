"""The object store as services see it. Implementations: `s3`, `directory`.

Methods block and may be called from any thread; asyncio code calls them by `asyncio.to_thread`. Objects are written
whole or not at all. Keys are those of `messages.objects.ObjectKey`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Protocol, Self


@dataclass(frozen=True, slots=True)
class Abilities:
    """What the endpoint was found able to do by trying it at start."""

    conditional_put: bool


class RangeReader(Protocol):
    """A range of an object, read from front to back. Of one thread at a time; close it, or use it by `with`."""

    def read_into(self, buffer: memoryview) -> None:
        """Fill `buffer` with the next bytes; UNAVAILABLE when a store that broke off is not back within its patience,
        INVALID_INPUT beyond the range's end."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...


class ObjectStore(Protocol):
    @property
    def abilities(self) -> Abilities: ...

    def put(self, key: str, data: bytes | memoryview, *, if_absent: bool = False) -> str:
        """Store bytes; returns the ETag. `if_absent`: CONFLICT if the key exists (by If-None-Match where the endpoint
        honours it, else by looking first)."""
        ...

    def put_file(self, key: str, path: Path) -> None:
        """Store a file, in parallel parts when it is large."""
        ...

    def get(self, key: str, *, limit: int) -> bytes:
        """The whole object; TOO_LARGE if it has more than `limit` bytes, NOT_FOUND if it is absent."""
        ...

    def read_into(self, key: str, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` from byte `offset` on; INVALID_INPUT if the object ends before."""
        ...

    def open_range(self, key: str, offset: int, length: int) -> RangeReader:
        """Begin to read `length` bytes from `offset` on by one request: for readers of many objects side by side.

        A connection that breaks is taken up again from where it was, so bytes of an object that was replaced meanwhile
        may be mixed: readers of such objects compare digests. NOT_FOUND; INVALID_INPUT if the object ends before."""
        ...

    def get_file(self, key: str, path: Path, *, limit: int) -> None:
        """Fetch into a file, atomically (a partial file never has the final name)."""
        ...

    def size(self, key: str) -> int:
        """Bytes; NOT_FOUND if absent."""
        ...

    def exists(self, key: str) -> bool: ...

    def delete(self, key: str) -> None:
        """Remove; absent is fine."""
        ...

    def keys(self, prefix: str) -> Iterator[str]: ...

    def find(self, key: str) -> int | None:
        """The object's bytes, None if absent; for who may list and not read, too."""
        ...

    def total(self, prefix: str) -> int:
        """Bytes of all objects whose keys begin so."""
        ...

    def open_upload(self, key: str) -> str:
        """Begin a multipart upload; returns its id."""
        ...

    def put_part(self, key: str, upload: str, number: int, data: bytes | memoryview) -> str:
        """Store part `number` (from 1); returns its ETag. Putting a part again replaces it."""
        ...

    def close_upload(self, key: str, upload: str, etags: Sequence[tuple[int, str]], *, if_absent: bool = False) -> None:
        """Compose the parts (number, ETag) into the object. Closing a closed upload whose object exists is fine.
        `if_absent`: CONFLICT if the key exists, where the endpoint honours the condition."""
        ...

    def abort_upload(self, key: str, upload: str) -> None: ...

    def abort_uploads(self, prefix: str) -> int:
        """Abort all unfinished uploads of keys that begin with `prefix`; returns how many there were."""
        ...

    def link_get(self, key: str, expires: timedelta) -> str:
        """A presigned URL to download `key`."""
        ...

    def link_part(
        self, key: str, upload: str, number: int, size: int, digest: str, expires: timedelta
    ) -> tuple[str, dict[str, str]]:
        """A presigned URL to PUT part `number` of an upload, and the headers to send: the link is good for `size` bytes
        with this SHA-256 (hexadecimal) alone, and until the upload is closed or aborted."""
        ...

    def ready(self) -> bool: ...

    def close(self) -> None: ...
