"""Any S3-compatible endpoint. The `minio` client signs; data go by presigned links over one pool of connections,
which spares hashing every payload for its signature."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.store.http import StoreHttp
from hanse_fabric.store.port import Abilities
from hanse_fabric.store.probe import probe
from hanse_fabric.tensors.digest import LEAF_BYTES

if TYPE_CHECKING:
    import urllib3
    from minio import Minio

T = TypeVar("T")

_LINK = timedelta(minutes=15)
_PART_BYTES = LEAF_BYTES
_PARALLEL_PARTS = 3
_READ_BYTES = 1 << 20


class S3Store:
    """`store.port.ObjectStore` on one bucket of an S3 endpoint.

    Args:
        url: the endpoint, http(s)://host:port.
        ca: PEM file of the authority behind its certificate; None for the system's.
        patience: seconds for which an unreachable store is tried again.
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
    ) -> None:
        from minio import Minio

        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.path.strip("/"):
            raise invalid("store url", url, "http(s)://host:port")
        self._http = StoreHttp(ca=ca, patience=patience)
        self._bucket = bucket
        self._client: Minio = Minio(
            parts.netloc,
            access_key=access_key,
            secret_key=secret_key,
            secure=parts.scheme == "https",
            region=region,
            http_client=self._http.pool,
        )

    @cached_property
    def abilities(self) -> Abilities:
        """Found out by trying, when first asked."""
        return probe(lambda key, data, headers: self._put(key, data, headers), self.delete)

    def put(self, key: str, data: bytes | memoryview, *, if_absent: bool = False) -> str:
        headers = {}
        if if_absent:
            if self.abilities.conditional_put:
                headers["If-None-Match"] = "*"
            elif self.exists(key):
                raise HanseError(ErrorCode.CONFLICT, f"object store: {key}: exists already")
        return self._put(key, data, headers)

    def put_file(self, key: str, path: Path) -> None:
        size = path.stat().st_size
        if size > _PART_BYTES:
            self._put_parts(key, path, size)
            return
        with path.open("rb") as file:
            self._put(key, file.read(), {})

    def get(self, key: str, *, limit: int) -> bytes:
        def read(response: urllib3.BaseHTTPResponse) -> bytes:
            data: bytes = response.read(limit + 1)
            if len(data) > limit:
                raise HanseError(ErrorCode.TOO_LARGE, f"object store: {key}: more than {limit} bytes")
            return data

        return self._send("GET", key, read=read)

    def read_into(self, key: str, offset: int, buffer: memoryview) -> None:
        target = buffer.cast("B")
        if not len(target):
            return
        last = offset + len(target) - 1

        def read(response: urllib3.BaseHTTPResponse) -> None:
            filled = 0
            while filled < len(target):
                piece = response.read(min(_READ_BYTES, len(target) - filled))
                if not piece:
                    raise invalid(f"range {offset}..{last} of {key}", f"{filled} bytes", "within the object")
                target[filled : filled + len(piece)] = piece
                filled += len(piece)

        self._send("GET", key, headers={"Range": f"bytes={offset}-{last}"}, read=read)

    def get_file(self, key: str, path: Path, *, limit: int) -> None:
        from hanse_fabric.store.transfer import save_response

        self._send("GET", key, read=lambda response: save_response(response, path, limit, key))

    def size(self, key: str) -> int:
        return self._send("HEAD", key, read=lambda response: int(response.headers["Content-Length"]))

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
            self._send("DELETE", key, read=lambda _: None)
        except HanseError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise

    def keys(self, prefix: str) -> Iterator[str]:
        from minio.error import MinioException

        try:
            for item in self._client.list_objects(self._bucket, prefix=prefix, recursive=True):
                if item.object_name is not None:
                    yield item.object_name
        except MinioException as error:
            raise HanseError(ErrorCode.UNAVAILABLE, f"object store: list {prefix}: {error}") from None

    def open_upload(self, key: str) -> str:
        answer = self._send("POST", key, query={"uploads": ""}, read=lambda response: response.read().decode())
        found = re.search(r"<UploadId>([^<]+)</UploadId>", answer)
        if found is None:
            raise HanseError(ErrorCode.UNAVAILABLE, f"object store: {key}: no upload id in the answer")
        return found[1]

    def put_part(self, key: str, upload: str, number: int, data: bytes | memoryview) -> str:
        query = {"uploadId": upload, "partNumber": str(number)}
        return self._send("PUT", key, query=query, body=lambda: data, read=_etag)

    def close_upload(self, key: str, upload: str, etags: Sequence[tuple[int, str]]) -> None:
        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>&quot;{etag}&quot;</ETag></Part>"
            for number, etag in sorted(etags)
        )
        body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        try:
            answer = self._send(
                "POST", key, query={"uploadId": upload}, body=lambda: body, read=lambda response: response.read()
            )
        except HanseError as error:
            # An upload that was closed before a crash is no longer known; its object is there.
            if error.code in (ErrorCode.NOT_FOUND, ErrorCode.INVALID_INPUT) and self.exists(key):
                return
            raise
        if b"<Error>" in answer:  # S3 may answer 200 and fail while composing
            raise HanseError(ErrorCode.UNAVAILABLE, f"object store: {key}: {answer[:300].decode(errors='replace')}")

    def abort_upload(self, key: str, upload: str) -> None:
        try:
            self._send("DELETE", key, query={"uploadId": upload}, read=lambda _: None)
        except HanseError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise

    def link_get(self, key: str, expires: timedelta) -> str:
        return self._link("GET", key, expires=expires)

    def link_put(self, key: str, expires: timedelta) -> str:
        return self._link("PUT", key, expires=expires)

    def ready(self) -> bool:
        """Any answer will do, a refusal too: the store is there."""
        return self._http.answers(self._link("HEAD", "probe/ready"))

    def close(self) -> None:
        self._http.close()

    def _put(self, key: str, data: bytes | memoryview, headers: Mapping[str, str]) -> str:
        return self._send("PUT", key, body=lambda: data, headers=headers, read=_etag)

    def _put_parts(self, key: str, path: Path, size: int) -> None:
        upload = self.open_upload(key)

        def part(number: int) -> tuple[int, str]:
            with path.open("rb") as file:
                file.seek((number - 1) * _PART_BYTES)
                return number, self.put_part(key, upload, number, file.read(_PART_BYTES))

        try:
            with ThreadPoolExecutor(_PARALLEL_PARTS, thread_name_prefix="upload") as threads:
                etags = list(threads.map(part, range(1, -(-size // _PART_BYTES) + 1)))
            self.close_upload(key, upload, etags)
        except BaseException:
            self.abort_upload(key, upload)
            raise

    def _link(
        self, method: str, key: str, *, query: Mapping[str, str] | None = None, expires: timedelta = _LINK
    ) -> str:
        extra: dict[str, Any] | None = dict(query) if query else None
        return str(self._client.get_presigned_url(method, self._bucket, key, expires=expires, extra_query_params=extra))

    def _send(
        self,
        method: str,
        key: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Callable[[], bytes | memoryview | None] = lambda: None,
        headers: Mapping[str, str] | None = None,
        read: Callable[[urllib3.BaseHTTPResponse], T],
    ) -> T:
        return self._http.send(
            method, lambda: self._link(method, key, query=query), body=body, headers=headers, read=read, what=key
        )


def _etag(response: urllib3.BaseHTTPResponse) -> str:
    return str(response.headers.get("ETag", "")).strip('"')
