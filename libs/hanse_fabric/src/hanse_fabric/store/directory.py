"""Objects in a directory of this machine: for one machine and for tests; behaves as an S3 endpoint does.

Below the root: `objects/<key>`; `uploads/<id>/<number>`, beside `uploads/<id>/key`; and `link.key`, the secret that
links are signed with.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from io import FileIO
from pathlib import Path
from typing import Self

from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.store.files import disk_error, whole_file
from hanse_fabric.store.keys import check_key
from hanse_fabric.store.links import LinkSigner, etag_of
from hanse_fabric.store.port import Abilities, RangeReader

_COPY_BYTES = 1 << 20
_UPLOAD_KEY = "key"


class DirectoryStore:
    """An `ObjectStore` in `root`, which is made if absent. Several processes may share it."""

    def __init__(self, root: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        self._root = root.absolute()
        self._objects = self._root / "objects"
        self._uploads = self._root / "uploads"
        self._objects.mkdir(parents=True, exist_ok=True)
        self._uploads.mkdir(exist_ok=True)
        self._signer = LinkSigner.of(self._root, clock)

    @property
    def abilities(self) -> Abilities:
        return Abilities(conditional_put=True)

    def put(self, key: str, data: bytes | memoryview, *, if_absent: bool = False) -> str:
        path = self._path(key)
        if if_absent and path.exists():
            raise HanseError(ErrorCode.CONFLICT, f"object {key}: exists already")
        with whole_file(path, replace=not if_absent) as file:
            file.write(data)
        return _etag(data)

    def put_file(self, key: str, path: Path) -> None:
        with _open_errors(path), path.open("rb") as source, whole_file(self._path(key)) as file:
            shutil.copyfileobj(source, file, _COPY_BYTES)

    def get(self, key: str, *, limit: int) -> bytes:
        self._check_limit(key, limit)
        with self._errors(key):
            return self._path(key).read_bytes()

    def read_into(self, key: str, offset: int, buffer: memoryview) -> None:
        with self.open_range(key, offset, buffer.nbytes) as reader:
            reader.read_into(buffer)

    def open_range(self, key: str, offset: int, length: int) -> RangeReader:
        with self._errors(key):
            file = self._path(key).open("rb", buffering=0)
        size = os.fstat(file.fileno()).st_size
        if offset + length > size:
            file.close()
            raise invalid(f"object {key}: range", f"{offset}+{length}", f"inside its {size} bytes")
        file.seek(offset)
        return _FileRange(key, file, length)

    def get_file(self, key: str, path: Path, *, limit: int) -> None:
        self._check_limit(key, limit)
        with self._errors(key), self._path(key).open("rb") as source, whole_file(path, sync=False) as file:
            shutil.copyfileobj(source, file, _COPY_BYTES)

    def size(self, key: str) -> int:
        path = self._path(key)
        if not path.is_file():
            raise _absent(key)
        return path.stat().st_size

    def exists(self, key: str) -> bool:
        return self._path(key).is_file()

    def delete(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)

    def keys(self, prefix: str) -> Iterator[str]:
        # Only the folder that the prefix names is walked: other projects' objects may be many.
        folder = (self._objects / prefix).parent if not prefix.endswith("/") else self._objects / prefix
        if ".." in prefix or prefix.startswith("/"):
            raise invalid("prefix", prefix, "the beginning of a key")
        found = (path.relative_to(self._objects).as_posix() for path in folder.rglob("*") if path.is_file())
        yield from sorted(key for key in found if key.startswith(prefix) and not key.endswith(".partial"))

    def find(self, key: str) -> int | None:
        path = self._path(key)
        return path.stat().st_size if path.is_file() else None

    def total(self, prefix: str) -> int:
        return sum(self.find(key) or 0 for key in self.keys(prefix))

    def open_upload(self, key: str) -> str:
        check_key(key)
        upload = secrets.token_hex(16)
        (self._uploads / upload).mkdir()
        (self._uploads / upload / _UPLOAD_KEY).write_text(key)
        return upload

    def put_part(self, key: str, upload: str, number: int, data: bytes | memoryview) -> str:
        check_key(key)
        if not 1 <= number <= 10_000:
            raise invalid("part number", number, "between 1 and 10000")
        folder = self._upload(upload)
        if not folder.is_dir():
            raise HanseError(ErrorCode.NOT_FOUND, f"upload {upload} of {key}: not open")
        with whole_file(folder / str(number)) as file:
            file.write(data)
        return _etag(data)

    def close_upload(self, key: str, upload: str, etags: Sequence[tuple[int, str]], *, if_absent: bool = False) -> None:
        folder = self._upload(upload)
        if not self._is_open(folder, key):
            if self.exists(key):
                return
            raise HanseError(ErrorCode.NOT_FOUND, f"upload {upload} of {key}: not open, and there is no such object")
        with whole_file(self._path(key), replace=not if_absent) as file:
            for number, etag in sorted(etags):
                part = folder / str(number)
                if not part.is_file() or _etag(part.read_bytes()) != etag:
                    raise invalid(f"upload of {key}: part {number}", etag, "the ETag of a part that was stored")
                with part.open("rb") as source:
                    shutil.copyfileobj(source, file, _COPY_BYTES)
        shutil.rmtree(folder, ignore_errors=True)

    def abort_upload(self, key: str, upload: str) -> None:
        check_key(key)
        shutil.rmtree(self._upload(upload), ignore_errors=True)

    def abort_uploads(self, prefix: str) -> int:
        found = [path.parent for path in self._uploads.glob(f"*/{_UPLOAD_KEY}") if path.read_text().startswith(prefix)]
        for folder in found:
            shutil.rmtree(folder, ignore_errors=True)
        return len(found)

    def link_get(self, key: str, expires: timedelta) -> str:
        return self._signer.sign("GET", self._path(key), expires)

    def link_part(
        self, key: str, upload: str, number: int, size: int, digest: str, expires: timedelta
    ) -> tuple[str, dict[str, str]]:
        folder = self._upload(upload)
        if not self._is_open(folder, key):
            raise HanseError(ErrorCode.NOT_FOUND, f"upload {upload} of {key}: not open")
        return self._signer.sign("PUT", folder / str(number), expires, holding=f"{size}-{digest}"), {}

    def ready(self) -> bool:
        return os.access(self._objects, os.W_OK)

    def close(self) -> None:
        """Nothing is held open."""

    def _path(self, key: str) -> Path:
        return self._objects / check_key(key)

    def _upload(self, upload: str) -> Path:
        if not re.fullmatch(r"[0-9a-f]{32}", upload):
            raise invalid("upload", upload, "an id that open_upload gave")
        return self._uploads / upload

    def _is_open(self, folder: Path, key: str) -> bool:
        return folder.is_dir() and (folder / _UPLOAD_KEY).read_text() == check_key(key)

    def _check_limit(self, key: str, limit: int) -> None:
        size = self.size(key)
        if size > limit:
            raise HanseError(ErrorCode.TOO_LARGE, f"object {key}: {size} bytes, {limit} are allowed")

    @contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, IsADirectoryError):
            raise _absent(key) from None


class _FileRange:
    """A `RangeReader` of a file."""

    def __init__(self, key: str, file: FileIO, length: int) -> None:
        self._key, self._file, self._left = key, file, length

    def read_into(self, buffer: memoryview) -> None:
        target = buffer.cast("B")
        if len(target) > self._left:
            raise invalid(f"object {self._key}: range", len(target), f"at most the {self._left} bytes that are left")
        self._left -= len(target)
        while len(target):
            count = self._file.readinto(target)
            if not count:
                raise HanseError(ErrorCode.CONFLICT, f"object {self._key}: became shorter while it was read")
            target = target[count:]

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@contextmanager
def _open_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise disk_error(path, error) from None


def _absent(key: str) -> HanseError:
    return HanseError(ErrorCode.NOT_FOUND, f"object {key}: there is none in the store")


def _etag(data: bytes | memoryview) -> str:
    return etag_of(hashlib.sha256(data).hexdigest())
