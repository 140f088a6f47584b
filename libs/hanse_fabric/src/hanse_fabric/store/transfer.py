"""Transfers by link: how a site, which has no credentials for the store, fetches a model and sends an update."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import urlsplit

import urllib3

from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.store.files import disk_error, whole_file
from hanse_fabric.store.http import Body, HttpClient, Refused
from hanse_fabric.store.links import LinkSigner

_READ_BYTES = 1 << 20


class Transfer(Protocol):
    """Moves files by links. Methods block and may be called from any thread."""

    def fetch(self, url: str, path: Path, *, limit: int) -> None:
        """Download into `path`, whole or not at all; TOO_LARGE beyond `limit` bytes, GONE if the link has expired.

        A file that has the name already may be written over, and is lost where the download fails.

        The file is not flushed to the disk: whoever keeps it across a power failure must verify its digest then.
        """
        ...

    def send(self, path: Path, url: str) -> None:
        """Upload the file; GONE if the link has expired."""
        ...

    def close(self) -> None: ...


class HttpTransfer:
    """Transfers by presigned http(s) links. A transfer that breaks off goes on where it was.

    Args:
        ca: PEM file of the store's CA; None: the system's.
        patience: seconds for which an unreachable store is tried again.
    """

    def __init__(self, ca: Path | None = None, *, patience: float = 30.0) -> None:
        self._http = HttpClient(ca, patience=patience, connections=4)

    def fetch(self, url: str, path: Path, *, limit: int) -> None:
        _check_web(url)
        with whole_file(path, sync=False, over=path) as file:
            download(self._http, url, file, limit=limit, what=f"download of {path.name}")

    def send(self, path: Path, url: str) -> None:
        _check_web(url)
        try:
            self._http.request("PUT", url, _drain, body=Body.of_file(path))
        except Refused as refused:
            raise refused.explain(f"upload of {path.name}") from None
        except OSError as error:
            raise disk_error(path, error) from None

    def close(self) -> None:
        self._http.close()


class DirectoryTransfer:
    """Transfers by the links of the `DirectoryStore` in `root`, on the same machine."""

    def __init__(self, root: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        self._signer = LinkSigner.of(root, clock)

    def fetch(self, url: str, path: Path, *, limit: int) -> None:
        source = self._signer.open("GET", url)
        try:
            with source.open("rb") as file:
                if source.stat().st_size > limit:
                    raise _too_large(f"download of {path.name}", limit)
                with whole_file(path, sync=False) as target:
                    shutil.copyfileobj(file, target, _READ_BYTES)
        except OSError as error:
            raise disk_error(source, error) from None

    def send(self, path: Path, url: str) -> None:
        target = self._signer.open("PUT", url)
        try:
            with path.open("rb") as file, whole_file(target) as copy:
                shutil.copyfileobj(file, copy, _READ_BYTES)
        except OSError as error:
            raise disk_error(path, error) from None

    def close(self) -> None:
        """Nothing is held open."""


def download(http: HttpClient, url: str, file: BinaryIO, *, limit: int, what: str) -> None:
    """Fetch `url` into an empty file; after a break go on from the byte that was reached.

    Raises:
        HanseError: TOO_LARGE as soon as more than `limit` bytes are announced or come; NOT_FOUND, GONE, UNAVAILABLE.
    """
    version = ""

    def headers() -> dict[str, str]:
        return {"Range": f"bytes={file.tell()}-"} if file.tell() else {}

    def read(response: urllib3.BaseHTTPResponse) -> None:
        nonlocal version
        tag = response.headers.get("ETag", "")
        if response.status != 206 or tag != version:
            # The object is another one by now: the bytes that were fetched so far are of no use.
            resumed = file.tell() > 0 and response.status == 206
            file.seek(0)
            file.truncate()
            version = tag
            if resumed:
                raise urllib3.exceptions.ProtocolError("the object changed between two parts of its download")
        announced = response.headers.get("Content-Length", "")
        end = file.tell() + int(announced) if announced.isdecimal() else None
        if end is not None and end > limit:
            raise _too_large(what, limit)
        for got in response.stream(_READ_BYTES, decode_content=False):
            if file.tell() + len(got) > limit:
                raise _too_large(what, limit)
            file.write(got)
        if end is not None and file.tell() != end:
            raise urllib3.exceptions.ProtocolError(f"ended after {file.tell()} of {end} bytes")

    try:
        http.request("GET", url, read, headers=headers)
    except Refused as refused:
        raise refused.explain(what) from None


def _drain(response: urllib3.BaseHTTPResponse) -> None:
    response.drain_conn()


def _check_web(url: str) -> None:
    address = urlsplit(url)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise invalid("link", f"{address.scheme}://{address.netloc}", "an http:// or https:// address")


def _too_large(what: str, limit: int) -> HanseError:
    return HanseError(ErrorCode.TOO_LARGE, f"{what}: more than the {limit} bytes that were announced")
