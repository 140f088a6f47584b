"""Signatures of links, held to the example in Amazon's "Authenticating Requests: Using Query Parameters"."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest

from hanse_fabric.store.sigv4 import Signer

AT = datetime(2013, 5, 24, tzinfo=UTC)
SIGNER = Signer(
    "https://examplebucket.s3.amazonaws.com", "us-east-1", "AKIAIOSFODNN7EXAMPLE",
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
)  # fmt: skip


def signature(path: str = "/test.txt", **headers: str) -> str:
    url = SIGNER.presign("GET", path, at=AT, expires=timedelta(days=1), headers=headers, query={})
    return parse_qs(urlsplit(url).query)["X-Amz-Signature"][0]


def test_the_published_example_has_its_signature() -> None:
    assert signature() == "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"


@pytest.mark.parametrize(
    "changed", [{"path": "/other.txt"}, {"range": "bytes=0-9"}, {"content-length": "5"}, {"x-amz-content-sha256": "0"}]
)
def test_every_signed_word_changes_the_signature(changed: dict[str, str]) -> None:
    assert signature(**changed) != signature()


def test_the_secret_is_not_shown() -> None:
    assert SIGNER.secret_key not in repr(SIGNER)
