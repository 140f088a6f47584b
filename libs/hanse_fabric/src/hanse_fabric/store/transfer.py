"""Transfers by link: how a site, which has no credentials for the store, fetches a model and sends an update."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import urlsplit

import urllib3

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.uploads import PartLink
from hanse_fabric.store.files import disk_error, whole_file
from hanse_fabric.store.http import Body, HttpClient, Refused

_READ_BYTES = 1 << 20
CHECKSUM = "x-amz-checksum-sha256"
"""The header that a store compares a part's content with: SHA-256 in base64."""


class Transfer(Protocol):
    """Moves files by links. Methods block and may be called from any thread."""

    def fetch(self, url: str, path: Path, *, limit: int) -> None:
        """Download into `path`, whole or not at all; TOO_LARGE beyond `limit` bytes, GONE if the link has expired.

        A file that has the name already may be written over, and is lost where the download fails.

        The file is not flushed to the disk: whoever keeps it across a power failure must verify its digest then.
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

    def fetch(self, url: str, path: Path, *, limit: int) -> None:
        _check_web(url)
        with whole_file(path, sync=False, over=path) as file:
            download(self._http, url, file, limit=limit, what=f"download of {path.name}")

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


def _etag(response: urllib3.BaseHTTPResponse) -> str:
    response.drain_conn()
    return response.headers.get("ETag", "").strip('"')


def _check_web(url: str) -> None:
    address = urlsplit(url)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise invalid("link", f"{address.scheme}://{address.netloc}", "an http:// or https:// address")


def _too_large(what: str, limit: int) -> HanseError:
    return HanseError(ErrorCode.TOO_LARGE, f"{what}: more than the {limit} bytes that were announced")
