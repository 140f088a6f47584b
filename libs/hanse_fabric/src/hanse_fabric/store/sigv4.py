"""Presigned requests to S3 whose headers are signed, too (AWS Signature Version 4, query form).

`minio` signs the host alone. With a part's length and checksum signed, a link stores these bytes and no others.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from urllib.parse import quote, urlsplit

_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs for one endpoint, `http(s)://host:port`, with one identity's keys."""

    endpoint: str
    region: str
    access_key: str
    secret_key: str = field(repr=False)

    def presign(
        self,
        method: str,
        path: str,
        *,
        at: datetime,
        expires: timedelta,
        headers: Mapping[str, str],
        query: Mapping[str, str],
    ) -> str:
        """An address that is good for one request with exactly these headers, until it expires.

        Args:
            path: `/bucket/key`, not escaped.
            at: the time of signing, in UTC.
            headers: beside the host's, by name in lower case. Without `x-amz-content-sha256` the body is not signed.
        """
        address = urlsplit(self.endpoint)
        signed = {name: value.strip() for name, value in headers.items()} | {"host": address.netloc}
        names = ";".join(sorted(signed))
        scope = f"{at:%Y%m%d}/{self.region}/s3/aws4_request"
        parameters = {
            **query,
            "X-Amz-Algorithm": _ALGORITHM,
            "X-Amz-Credential": f"{self.access_key}/{scope}",
            "X-Amz-Date": f"{at:%Y%m%dT%H%M%SZ}",
            "X-Amz-Expires": str(int(expires.total_seconds())),
            "X-Amz-SignedHeaders": names,
        }
        listed = "&".join(f"{_escape(name)}={_escape(value)}" for name, value in sorted(parameters.items()))
        place = quote(path, safe="/-_.~")
        lines = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
        body = signed.get("x-amz-content-sha256", "UNSIGNED-PAYLOAD")
        asked = "\n".join((method, place, listed, lines, names, body))
        to_sign = "\n".join((_ALGORITHM, f"{at:%Y%m%dT%H%M%SZ}", scope, hashlib.sha256(asked.encode()).hexdigest()))
        key = f"AWS4{self.secret_key}".encode()
        for word in scope.split("/"):
            key = _mac(key, word)
        return f"{self.endpoint.rstrip('/')}{place}?{listed}&X-Amz-Signature={_mac(key, to_sign).hex()}"


def _mac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def _escape(text: str) -> str:
    return quote(text, safe="-_.~")
