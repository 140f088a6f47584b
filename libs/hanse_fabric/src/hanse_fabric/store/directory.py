"""A directory as object store: for one process, tests and notebooks."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from pydantic import TypeAdapter, ValidationError

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.objects import ObjectKey
from hanse_fabric.store.port import Abilities

_KEY: TypeAdapter[str] = TypeAdapter(ObjectKey)


class DirectoryStore:
    """`store.port.ObjectStore` in a folder. Links are `file:` URLs that only DirectoryTransfer understands."""

    def __init__(self, root: Path) -> None:
        self._objects = root / "objects"
        self._uploads = root / "uploads"
        self._objects.mkdir(parents=True, exist_ok=True)
        self._uploads.mkdir(parents=True, exist_ok=True)
        self._secret = secrets.token_bytes(32)

    @property
    def abilities(self) -> Abilities:
        return Abilities(conditional_put=True)

    def put(self, key: str, data: bytes | memoryview, *, if_absent: bool = False) -> str:
        path = self._path(key)
        partial = self._partial()
        partial.write_bytes(data)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            if if_absent:
                os.link(partial, path)  # fails where the name exists: the one atomic test-and-set of a file system
            else:
                partial.replace(path)
        except FileExistsError:
            raise HanseError(ErrorCode.CONFLICT, f"object store: {key}: exists already") from None
        finally:
            partial.unlink(missing_ok=True)
        return _etag(data)

    def put_file(self, key: str, path: Path) -> None:
        partial = self._partial()
        shutil.copyfile(path, partial)
        target = self._path(key)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.replace(target)

    def get(self, key: str, *, limit: int) -> bytes:
        path = self._existing(key)
        if path.stat().st_size > limit:
            raise HanseError(ErrorCode.TOO_LARGE, f"object store: {key}: more than {limit} bytes")
        return path.read_bytes()

    def read_into(self, key: str, offset: int, buffer: memoryview) -> None:
        target = buffer.cast("B")
        with self._existing(key).open("rb") as file:
            file.seek(offset)
            filled = file.readinto(target)
        if filled != len(target):
            last = offset + len(target) - 1
            raise invalid(f"range {offset}..{last} of {key}", f"{filled} bytes", "within the object")

    def get_file(self, key: str, path: Path, *, limit: int) -> None:
        source = self._existing(key)
        if source.stat().st_size > limit:
            raise HanseError(ErrorCode.TOO_LARGE, f"object store: {key}: more than {limit} bytes")
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        try:
            shutil.copyfile(source, partial)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    def size(self, key: str) -> int:
        return self._existing(key).stat().st_size

    def exists(self, key: str) -> bool:
        return self._path(key).is_file()

    def delete(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)

    def keys(self, prefix: str) -> Iterator[str]:
        for path in sorted(self._objects.rglob("*")):
            key = path.relative_to(self._objects).as_posix()
            if path.is_file() and key.startswith(prefix):
                yield key

    def open_upload(self, key: str) -> str:
        self._path(key)
        upload = secrets.token_hex(16)
        (self._uploads / upload).mkdir()
        return upload

    def put_part(self, key: str, upload: str, number: int, data: bytes | memoryview) -> str:
        folder = self._upload(key, upload)
        partial = self._partial()
        partial.write_bytes(data)
        partial.replace(folder / f"{number:05d}")
        return _etag(data)

    def close_upload(self, key: str, upload: str, etags: Sequence[tuple[int, str]]) -> None:
        if not (self._uploads / upload).is_dir() and self.exists(key):
            return
        folder = self._upload(key, upload)
        partial = self._partial()
        with partial.open("wb") as whole:
            for number, etag in sorted(etags):
                part = folder / f"{number:05d}"
                data = part.read_bytes() if part.exists() else b""
                if _etag(data) != etag:
                    raise invalid(f"part {number} of {key}", etag, "the ETag of a stored part")
                whole.write(data)
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.replace(path)
        shutil.rmtree(folder, ignore_errors=True)

    def abort_upload(self, key: str, upload: str) -> None:  # noqa: ARG002 - the port names both
        if upload.isalnum():
            shutil.rmtree(self._uploads / upload, ignore_errors=True)

    def link_get(self, key: str, expires: timedelta) -> str:
        return self._link("GET", key, expires)

    def link_put(self, key: str, expires: timedelta) -> str:
        return self._link("PUT", key, expires)

    def key_of_link(self, url: str, method: str) -> str:
        """The key that a link is for.

        Raises:
            HanseError: FORBIDDEN when the link was not made here, for another method, or has expired.
        """
        parts = urlsplit(url)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        key, until = unquote(parts.path.lstrip("/")), query.get("until", "0")
        expected = self._sign(method, key, until)
        if parts.scheme != "file" or not hmac.compare_digest(expected, query.get("signature", "")):
            raise HanseError(ErrorCode.FORBIDDEN, f"link for {key}: not signed by this store for {method}")
        if float(until) < time.time():
            raise HanseError(ErrorCode.FORBIDDEN, f"link for {key}: expired")
        return key

    def resolve_link(self, url: str, method: str) -> Path:
        """The file behind a link."""
        return self._existing(self.key_of_link(url, method))

    def ready(self) -> bool:
        return self._objects.is_dir()

    def close(self) -> None:
        """Nothing is held open."""

    def _link(self, method: str, key: str, expires: timedelta) -> str:
        self._path(key)
        until = str(time.time() + expires.total_seconds())
        query = urlencode({"until": until, "signature": self._sign(method, key, until)})
        return f"file:///{quote(key)}?{query}"

    def _sign(self, method: str, key: str, until: str) -> str:
        return hmac.new(self._secret, f"{method}\n{key}\n{until}".encode(), hashlib.sha256).hexdigest()

    def _path(self, key: str) -> Path:
        try:
            _KEY.validate_python(key)
        except ValidationError:
            raise invalid("key", key, "an object key") from None
        path = self._objects / key
        if ".." in key.split("/"):
            raise invalid("key", key, "an object key without '..'")
        return path

    def _existing(self, key: str) -> Path:
        path = self._path(key)
        if not path.is_file():
            raise HanseError(ErrorCode.NOT_FOUND, f"object store: {key}: there is no such object")
        return path

    def _upload(self, key: str, upload: str) -> Path:
        folder = self._uploads / upload
        if not upload.isalnum() or not folder.is_dir():
            raise HanseError(ErrorCode.NOT_FOUND, f"object store: {key}: there is no upload {upload!r}")
        return folder

    def _partial(self) -> Path:
        return self._uploads / f"{secrets.token_hex(8)}.partial"


def _etag(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
