"""Objects at any S3 endpoint (SeaweedFS is the one that comes along).

Every request goes by a presigned address over one pool of connections: `minio` signs, and nobody has to hash the
payload first, which halves the time of a put. A store that restarts is waited for.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

import urllib3

from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.store.files import disk_error, whole_file
from hanse_fabric.store.http import Body, HttpClient, Refused, xml_text
from hanse_fabric.store.keys import check_key
from hanse_fabric.store.port import Abilities, RangeReader
from hanse_fabric.store.probe import probe
from hanse_fabric.store.ranges import HttpRange
from hanse_fabric.store.sigv4 import Signer
from hanse_fabric.store.transfer import CHECKSUM, download
from hanse_fabric.tensors.digest import LEAF_BYTES

if TYPE_CHECKING:
    from minio import Minio

T = TypeVar("T")
_SIGNED_FOR = timedelta(hours=1)
_MOST_PARTS = 10_000
_PARTS_AT_ONCE = 3
_CONNECTIONS = 160
"""Kept open at most; the most that are used at once: an aggregator's two threads, each reading 64 updates."""


class S3Store:
    """An `ObjectStore` in a bucket. Nothing is asked of the endpoint before the first call.

    Args:
        url: `http(s)://host:port`, without a path.
        public_url: the same endpoint as those reach it who are given links, in the same form; empty: by `url`. A link
            is signed for the host in it: a proxy may lead there, but must leave the Host header as it is.
        ca: PEM file of the CA of an https endpoint; None: the system's.
        patience: seconds for which an endpoint that does not serve is tried again, then UNAVAILABLE.

    Raises:
        HanseError: INVALID_INPUT for an address of another form or a CA file that cannot be used.
    """

    def __init__(
        self,
        url: str,
        access_key: str,
        secret_key: str,
        bucket: str,
        *,
        ca: Path | None = None,
        region: str = "us-east-1",
        patience: float = 30.0,
        public_url: str = "",
    ) -> None:
        from hanse_fabric.store.minio_client import Minio

        self._bucket = bucket
        self._http = HttpClient(ca, patience=patience, connections=_CONNECTIONS)

        def signer(name: str, at: str) -> Minio:
            address = urlsplit(at)
            if address.scheme not in ("http", "https") or not address.hostname or address.path.strip("/"):
                raise invalid(name, at, "http(s)://host:port")
            # With the region given, signing asks nobody.
            return Minio(
                address.netloc, access_key, secret_key, secure=address.scheme == "https", region=region,
                http_client=self._http.direct(at),
            )  # fmt: skip

        self._signer = signer("store url", url)
        self._link_signer = signer("public store url", public_url) if public_url else self._signer
        self._part_signer = Signer(public_url or url, region, access_key, secret_key)
        self._abilities: Abilities | None = None
        self._probing = threading.Lock()

    @property
    def abilities(self) -> Abilities:
        """Tried at the first use.

        Raises:
            HanseError: UNAVAILABLE when the endpoint does not answer.
        """
        with self._probing:
            if self._abilities is None:
                self._abilities = probe(lambda key: self._put_conditional(key, b"probe"), self.delete)
            return self._abilities

    def make_bucket(self) -> None:
        """Create the bucket; one that exists is fine. Needs an administrator's keys."""
        from minio.error import S3Error

        def make() -> None:
            try:
                if not self._signer.bucket_exists(self._bucket):
                    self._signer.make_bucket(self._bucket)
            except S3Error as error:
                if error.code not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):
                    raise _refusal(error) from None

        self._explained(f"bucket {self._bucket}", lambda: self._http.persist(make, f"bucket {self._bucket}"))

    def put(self, key: str, data: bytes | memoryview, *, if_absent: bool = False) -> str:
        if if_absent:
            if self.abilities.conditional_put:
                return self._put_conditional(key, data)
            if self.exists(key):
                raise HanseError(ErrorCode.CONFLICT, f"object {key}: exists already")
        return self._send("PUT", key, _etag, body=Body.of_bytes(data))

    def put_file(self, key: str, path: Path) -> None:
        try:
            size = path.stat().st_size
            if size <= 2 * LEAF_BYTES:
                self._send("PUT", key, _etag, body=Body.of_file(path))
            else:
                self._put_parts(key, path, size)
        except OSError as error:
            raise disk_error(path, error) from None

    def get(self, key: str, *, limit: int) -> bytes:
        def read(response: urllib3.BaseHTTPResponse) -> bytes:
            if int(response.headers.get("Content-Length", "0")) > limit:
                raise HanseError(ErrorCode.TOO_LARGE, f"object {key}: more than the {limit} bytes that are allowed")
            data = response.read(limit + 1)
            if len(data) > limit:
                raise HanseError(ErrorCode.TOO_LARGE, f"object {key}: more than the {limit} bytes that are allowed")
            return data

        return self._send("GET", key, read)

    def read_into(self, key: str, offset: int, buffer: memoryview) -> None:
        with self.open_range(key, offset, buffer.nbytes) as reader:
            reader.read_into(buffer)

    def open_range(self, key: str, offset: int, length: int) -> RangeReader:
        return HttpRange(self._http, lambda: self._sign("GET", key), f"object {key}", offset, length)

    def get_file(self, key: str, path: Path, *, limit: int) -> None:
        with whole_file(path, sync=False) as file:
            download(self._http, self._sign("GET", key), file, limit=limit, what=f"object {key}")

    def size(self, key: str) -> int:
        return self._send("HEAD", key, lambda response: int(response.headers["Content-Length"]))

    def exists(self, key: str) -> bool:
        try:
            self.size(key)
        except HanseError as error:
            if error.code is ErrorCode.NOT_FOUND:
                return False
            raise
        return True

    def delete(self, key: str) -> None:
        try:
            self._send("DELETE", key, _nothing)
        except HanseError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise

    def keys(self, prefix: str) -> Iterator[str]:
        yield from self._listed(prefix)

    def find(self, key: str) -> int | None:
        return self._listed(check_key(key)).get(key)

    def total(self, prefix: str) -> int:
        return sum(self._listed(prefix).values())

    def _listed(self, prefix: str) -> dict[str, int]:
        from minio.error import S3Error

        def listed() -> dict[str, int]:
            try:
                found = self._signer.list_objects(self._bucket, prefix=prefix, recursive=True)
                return {item.object_name: item.size or 0 for item in found if not item.is_dir}
            except S3Error as error:
                raise _refusal(error) from None

        what = f"list of {prefix}"
        return self._explained(what, lambda: self._http.persist(listed, what))

    def open_upload(self, key: str) -> str:
        upload = xml_text(self._send("POST", key, _text, query={"uploads": ""}), "UploadId")
        if not upload:
            raise HanseError(ErrorCode.UNAVAILABLE, f"upload of {key}: the object store gave it no id")
        return upload

    def put_part(self, key: str, upload: str, number: int, data: bytes | memoryview) -> str:
        return self._put_part(key, upload, number, Body.of_bytes(data))

    def close_upload(self, key: str, upload: str, etags: Sequence[tuple[int, str]], *, if_absent: bool = False) -> None:
        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(etag)}</ETag></Part>"
            for number, etag in sorted(etags)
        )
        text = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        try:
            answer = self._send(
                "POST", key, _text, query={"uploadId": upload}, body=Body.of_bytes(text),
                headers={"If-None-Match": "*"} if if_absent else None,
            )  # fmt: skip
        except HanseError as error:
            # An upload that is closed is unknown; so is one whose answer was lost on the way.
            if error.code is ErrorCode.NOT_FOUND and self.exists(key):
                return
            raise
        # The status is sent before the work is done, so a failure may come with a 200.
        if code := xml_text(answer, "Code"):
            raise HanseError(ErrorCode.UNAVAILABLE, f"upload of {key}: {code} {xml_text(answer, 'Message')}")

    def abort_upload(self, key: str, upload: str) -> None:
        try:
            self._send("DELETE", key, _nothing, query={"uploadId": upload})
        except HanseError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise

    def abort_uploads(self, prefix: str) -> int:
        what = f"unfinished uploads of {prefix}"
        found = self._explained(what, lambda: self._http.persist(lambda: self._unfinished(prefix), what))
        for key, upload in found:
            self.abort_upload(key, upload)
        return len(found)

    def _unfinished(self, prefix: str) -> list[tuple[str, str]]:
        """(key, upload id) of all: listed by the first folder, since who may not read an object of it may do that."""
        from minio.error import S3Error

        found: list[tuple[str | None, str | None]] = []
        key_marker = id_marker = None
        more = True
        try:
            while more:
                # The one request that minio can make but offers no public name for.
                page = self._signer._list_multipart_uploads(
                    self._bucket, prefix=prefix.partition("/")[0] + "/", key_marker=key_marker,
                    upload_id_marker=id_marker,
                )  # fmt: skip
                key_marker, id_marker, more = page.next_key_marker, page.next_upload_id_marker, page.is_truncated
                found += [(upload.object_name, upload.upload_id) for upload in page.uploads]
        except S3Error as error:
            raise _refusal(error) from None
        return [(key, upload) for key, upload in found if key and upload and key.startswith(prefix)]

    def link_get(self, key: str, expires: timedelta) -> str:
        return self._sign("GET", key, expires=expires, by=self._link_signer)

    def link_part(
        self, key: str, upload: str, number: int, size: int, digest: str, expires: timedelta
    ) -> tuple[str, dict[str, str]]:
        headers = {
            "content-length": str(size),
            CHECKSUM: base64.b64encode(bytes.fromhex(digest)).decode(),
        }
        url = self._part_signer.presign(
            "PUT", f"/{self._bucket}/{check_key(key)}", at=SYSTEM_CLOCK.now(), expires=expires, headers=headers,
            query={"partNumber": str(number), "uploadId": upload},
        )  # fmt: skip
        return url, headers

    def ready(self) -> bool:
        """Whether the endpoint answers with these keys now; waits for a few seconds at most."""
        try:
            self._http.request("HEAD", self._sign("HEAD", "probe/ready"), _nothing, patience=0)
        except Refused as refused:
            return refused.status == 404
        except HanseError:
            return False
        return True

    def close(self) -> None:
        self._http.close()

    def _put_conditional(self, key: str, data: bytes | memoryview) -> str:
        attempts = 0

        def headers() -> dict[str, str]:
            nonlocal attempts
            attempts += 1
            return {"If-None-Match": "*"}

        try:
            return self._send("PUT", key, _etag, body=Body.of_bytes(data), headers=headers)
        except HanseError as error:
            if error.code is not ErrorCode.CONFLICT:
                raise
            # A first attempt may have been stored although its answer was lost: then the object is our own.
            if attempts > 1 and self._is(key, data):
                return self._send("HEAD", key, _etag)
            raise HanseError(ErrorCode.CONFLICT, f"object {key}: exists already") from None

    def _is(self, key: str, data: bytes | memoryview) -> bool:
        return self.size(key) == memoryview(data).nbytes and self.get(key, limit=memoryview(data).nbytes) == data

    def _put_parts(self, key: str, path: Path, size: int) -> None:
        # Whole leaves, so that a part of a huge file is a few of them.
        part = LEAF_BYTES * -(-size // (_MOST_PARTS * LEAF_BYTES))
        upload = self.open_upload(key)

        def put(number: int) -> tuple[int, str]:
            start = (number - 1) * part
            return number, self._put_part(key, upload, number, Body.of_file(path, start, min(part, size - start)))

        try:
            with ThreadPoolExecutor(_PARTS_AT_ONCE, thread_name_prefix="put-part") as threads:
                etags = list(threads.map(put, range(1, -(-size // part) + 1)))
            self.close_upload(key, upload, etags)
        except (HanseError, OSError):
            self.abort_upload(key, upload)
            raise

    def _put_part(self, key: str, upload: str, number: int, body: Body) -> str:
        if not 1 <= number <= _MOST_PARTS:
            raise invalid("part number", number, f"between 1 and {_MOST_PARTS}")
        return self._send("PUT", key, _etag, query={"partNumber": str(number), "uploadId": upload}, body=body)

    def _send(
        self,
        method: str,
        key: str,
        read: Callable[[urllib3.BaseHTTPResponse], T],
        *,
        query: Mapping[str, str] | None = None,
        body: Body | None = None,
        headers: Mapping[str, str] | Callable[[], Mapping[str, str]] | None = None,
    ) -> T:
        url = self._sign(method, key, query=query)
        return self._explained(
            f"object {key}", lambda: self._http.request(method, url, read, body=body, headers=headers)
        )

    def _sign(
        self,
        method: str,
        key: str,
        *,
        query: Mapping[str, str] | None = None,
        expires: timedelta = _SIGNED_FOR,
        by: Minio | None = None,
    ) -> str:
        url: str = (by or self._signer).get_presigned_url(
            method, self._bucket, check_key(key), expires=expires, extra_query_params=dict(query or {})
        )
        return url

    def _explained(self, what: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except Refused as refused:
            raise refused.explain(what) from None


def _refusal(error: object) -> Refused:
    status = getattr(getattr(error, "response", None), "status", 400)
    return Refused(status, str(getattr(error, "code", "")), str(getattr(error, "message", error)))


def _etag(response: urllib3.BaseHTTPResponse) -> str:
    response.drain_conn()
    return response.headers.get("ETag", "").strip('"')


def _text(response: urllib3.BaseHTTPResponse) -> str:
    return response.read(1 << 20).decode(errors="replace")


def _nothing(response: urllib3.BaseHTTPResponse) -> None:
    response.drain_conn()
