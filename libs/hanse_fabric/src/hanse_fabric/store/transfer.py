"""How a participant moves objects: by links that others signed for it. It has no credentials for the store."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.store.http import StoreHttp, check_url

if TYPE_CHECKING:
    import urllib3

    from hanse_fabric.store.directory import DirectoryStore

_CHUNK = 1 << 20


class Transfer(Protocol):
    """Methods block; asyncio code calls them by `asyncio.to_thread`."""

    def fetch(self, url: str, path: Path, *, limit: int) -> None:
        """Download into `path`, atomically; TOO_LARGE above `limit` bytes."""
        ...

    def send(self, path: Path, url: str) -> None:
        """Upload a file by one PUT."""
        ...


class HttpTransfer:
    """Over HTTP(S).

    Args:
        ca: PEM file of the authority behind the store's certificate; None for the system's.
        patience: seconds for which an unreachable store is tried again; links are given anew above that.
    """

    def __init__(self, *, ca: Path | None = None, patience: float = 10.0) -> None:
        self._http = StoreHttp(ca=ca, patience=patience, connections=4)

    def fetch(self, url: str, path: Path, *, limit: int) -> None:
        check_url(url)
        self._http.send(
            "GET", lambda: url, read=lambda response: save_response(response, path, limit, path.name), what=path.name
        )

    def send(self, path: Path, url: str) -> None:
        check_url(url)
        size = path.stat().st_size
        with path.open("rb") as file:

            def body() -> BinaryIO:
                file.seek(0)
                return file

            headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
            self._http.send(
                "PUT",
                lambda: url,
                body=body,
                headers=headers,
                read=lambda _: None,
                what=path.name,
            )

    def close(self) -> None:
        self._http.close()


class DirectoryTransfer:
    """Within one process: links of a DirectoryStore, which no other transfer understands."""

    def __init__(self, store: DirectoryStore) -> None:
        self._store = store

    def fetch(self, url: str, path: Path, *, limit: int) -> None:
        source = self._store.resolve_link(url, "GET")
        if source.stat().st_size > limit:
            raise HanseError(ErrorCode.TOO_LARGE, f"{path.name}: {source.stat().st_size} bytes, at most {limit}")
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        shutil.copyfile(source, partial)
        partial.replace(path)

    def send(self, path: Path, url: str) -> None:
        self._store.put_file(self._store.key_of_link(url, "PUT"), path)


def save_response(response: urllib3.BaseHTTPResponse, path: Path, limit: int, what: str) -> None:
    """Write a response's body to a file, atomically.

    Raises:
        HanseError: TOO_LARGE, or NO_SPACE when the disk is full.
    """
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    received = 0
    announced = response.headers.get("Content-Length")
    if announced is not None and int(announced) > limit:
        raise HanseError(ErrorCode.TOO_LARGE, f"{what}: {announced} bytes, at most {limit} were announced")
    try:
        with partial.open("wb") as file:
            while piece := response.read(_CHUNK):
                received += len(piece)
                if received > limit:
                    raise HanseError(ErrorCode.TOO_LARGE, f"{what}: more than the announced {limit} bytes")
                _write(file, piece, what)
        if announced is not None and received != int(announced):
            raise OSError(f"{received} of {announced} bytes arrived")  # tried again by the caller
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _write(file: BinaryIO, piece: bytes, what: str) -> None:
    try:
        file.write(piece)
    except OSError as error:
        raise HanseError(ErrorCode.NO_SPACE, f"{what}: cannot be written: {error.strerror}") from None
