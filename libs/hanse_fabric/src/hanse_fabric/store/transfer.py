"""Transfers by link: how a site, which has no credentials for the store, fetches a model and sends an update."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import urlsplit

import urllib3

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.uploads import PartLink
from hanse_fabric.store.files import disk_error, whole_file
from hanse_fabric.store.http import Body, HttpClient, Refused
from hanse_fabric.tensors.digest import Digester

_READ_BYTES = 1 << 20
CHECKSUM = "x-amz-checksum-sha256"
"""The header that a store compares a part's content with: SHA-256 in base64."""
Block = bytes
"""What came at once."""


@dataclass(slots=True)
class Came:
    """How many bytes of a file have come, from the first on; and whether more may be written to it.

    Attributes:
        digester: takes the bytes while they come, so that nobody reads the file again to name it; None: not wanted.
    """

    bytes: int = 0
    over: bool = False
    digester: Digester | None = None
    turn: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    _digested: int = 0

    def stop(self) -> None:
        """From now on nothing is written, though a thread that nobody waits for may still be fetching."""
        with self.turn:
            self.over = True

    def write(self, file: BinaryIO, data: Block) -> None:
        """Write what comes next.

        Raises:
            HanseError: CANCELLED when the file is not to be written to any more.
        """
        with self.writing():
            at = file.tell()
            file.write(data)
            file.flush()
            if self.digester is not None:
                if at == 0:
                    self.digester, self._digested = Digester(), 0
                if at == self._digested:
                    self.digester.update(data)
                    self._digested += len(data)

    @property
    def digested(self) -> tuple[str, tuple[str, ...]] | None:
        """(digest, leaves) of all bytes; None where some came before these."""
        whole = self.digester is not None and self._digested == self.bytes
        return self.digester.result() if self.digester is not None and whole else None

    @contextmanager
    def writing(self) -> Iterator[None]:
        """While one writes.

        Raises:
            HanseError: CANCELLED when the file is not to be written to any more.
        """
        with self.turn:
            if self.over:
                raise HanseError(ErrorCode.CANCELLED, "the download was given up")
            yield


class Transfer(Protocol):
    """Moves files by links. Methods block and may be called from any thread."""

    def fetch(self, url: str, path: Path, *, limit: int, came: Came | None = None) -> None:
        """Download into `path`; TOO_LARGE beyond `limit` bytes, GONE if the link has expired.

        The file is not flushed to the disk: whoever keeps it across a power failure must verify its digest then.

        Args:
            came: of the file at `path`: the download goes on after these, and what comes is counted here and stays
                where it breaks. None: the file has its name when it is whole, or not at all; one that has the name
                already may be written over, and is lost where the download fails.
        """
        ...

    def send_part(self, path: Path, part: PartLink, start: int, size: int) -> str:
        """Upload `size` bytes of the file from `start` on; returns the part's ETag. GONE if the link has expired,
        NOT_FOUND if the upload was given up."""
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

    def fetch(self, url: str, path: Path, *, limit: int, came: Came | None = None) -> None:
        _check_web(url)
        what = f"download of {path.name}"
        if came is None:
            with whole_file(path, sync=False, over=path) as file:
                download(self._http, url, file, limit=limit, what=what)
            return
        try:
            with path.open("r+b" if path.exists() else "w+b") as file:
                file.seek(came.bytes)
                try:
                    download(self._http, url, file, limit=limit, what=what, came=came)
                finally:
                    came.bytes = file.tell()
        except OSError as error:
            raise disk_error(path, error) from None

    def send_part(self, path: Path, part: PartLink, start: int, size: int) -> str:
        _check_web(part.url)
        try:
            if path.stat().st_size < start + size:
                raise HanseError(ErrorCode.CONFLICT, f"{path}: has become shorter since it was announced")
            body = Body.of_file(path, start, size)
            # The length is sent as it is; of the hub's words no other goes into the request.
            checksum = {name: value for name, value in part.headers.items() if name == CHECKSUM}
            return self._http.request("PUT", part.url, _etag, body=body, headers=checksum)
        except Refused as refused:
            raise refused.explain(f"upload of {path.name}") from None
        except OSError as error:
            raise disk_error(path, error) from None

    def close(self) -> None:
        self._http.close()


def download(
    http: HttpClient, url: str, file: BinaryIO, *, limit: int, what: str, came: Came | None = None
) -> None:  # fmt: skip
    """Fetch `url` into a file from where it stands; after a break go on from the byte that was reached.

    Raises:
        HanseError: TOO_LARGE as soon as more than `limit` bytes are announced or come; NOT_FOUND, GONE, UNAVAILABLE;
            CANCELLED when `came` was stopped.
    """
    version, came = "", came or Came()

    def headers() -> dict[str, str]:
        return {"Range": f"bytes={file.tell()}-"} if file.tell() else {}

    def read(response: urllib3.BaseHTTPResponse) -> None:
        nonlocal version
        tag = response.headers.get("ETag", "")
        goes_on = response.status == 206 and version in ("", tag)
        version = tag
        if not goes_on:
            # The object is another one by now: the bytes that were fetched so far are of no use.
            resumed = file.tell() > 0 and response.status == 206
            file.seek(0)
            if resumed:
                raise urllib3.exceptions.ProtocolError("the object changed between two parts of its download")
        announced = response.headers.get("Content-Length", "")
        end = file.tell() + int(announced) if announced.isdecimal() else None
        if end is not None and end > limit:
            raise _too_large(what, limit)
        while got := response.read1(_READ_BYTES, decode_content=False):  # as it comes: none is lost by a break
            if file.tell() + len(got) > limit:
                raise _too_large(what, limit)
            came.write(file, got)
        if end is not None and file.tell() != end:
            raise urllib3.exceptions.ProtocolError(f"ended after {file.tell()} of {end} bytes")

    try:
        http.request("GET", url, read, headers=headers)
        with came.writing():
            file.truncate()
    except Refused as refused:
        raise refused.explain(what) from None


def _etag(response: urllib3.BaseHTTPResponse) -> str:
    response.drain_conn()
    return response.headers.get("ETag", "").strip('"')


def _check_web(url: str) -> None:
    address = urlsplit(url)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise invalid("link", f"{address.scheme}://{address.netloc}", "an http:// or https:// address")


def _too_large(what: str, limit: int) -> HanseError:
    return HanseError(ErrorCode.TOO_LARGE, f"{what}: more than the {limit} bytes that were announced")
