"""What goes wrong with a real S3 endpoint: wrong keys, old links, TLS, and a server that is killed and comes back."""

from __future__ import annotations

import hashlib
import io
import ipaddress
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.uploads import PartLink
from hanse_fabric.store.http import Body, HttpClient
from hanse_fabric.store.s3 import S3Store
from hanse_fabric.store.transfer import CHECKSUM, HttpTransfer, download
from hanse_operations.servers.program import free_ports

MINUTE = timedelta(minutes=1)


@pytest.fixture
def key() -> str:
    return f"models/{secrets.token_hex(6)}/a"


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a throwaway authority, beside the certificate that it has issued to the server below."""
    return _certificate(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def mortal(new_weed: Callable[..., Any], ca: Path) -> Any:
    """A server that the tests of this module kill and start again, with a port for TLS, too."""
    return new_weed(cert=ca.with_name("store.pem"), key=ca.with_name("store.key"))


def test_a_wrong_secret_is_refused_with_a_hint(weed: Any, key: str) -> None:
    right = weed.store()
    right.put(key, b"x")
    store = S3Store(weed.url, right._signer._provider.retrieve().access_key, "wrong" * 5, "hanse")
    for call in (lambda: store.put(key, b"y"), lambda: store.get(key, limit=1), lambda: list(store.keys("models/"))):
        with pytest.raises(HanseError) as caught:
            call()
        assert caught.value.code is ErrorCode.UNAUTHENTICATED
        assert "secret key" in caught.value.hint
    assert not store.ready()


def test_an_unknown_access_key_is_refused(weed: Any, key: str) -> None:
    with pytest.raises(HanseError) as caught:
        S3Store(weed.url, "nobody", "wrong" * 5, "hanse").get(key, limit=1)
    assert caught.value.code is ErrorCode.UNAUTHENTICATED


def test_the_coordinator_writes_updates_and_reads_none(weed: Any) -> None:
    key = f"updates/{secrets.token_hex(6)}/a"
    coordinator, aggregator = weed.store("coordinator"), weed.store("aggregator")
    coordinator.put(key, b"x")
    assert aggregator.get(key, limit=1) == b"x"
    with pytest.raises(HanseError) as caught:
        coordinator.get(key, limit=1)
    assert caught.value.code is ErrorCode.FORBIDDEN
    for store in (coordinator, aggregator):
        assert store.ready()
        assert store.abilities.conditional_put


def test_the_aggregator_may_abort_unfinished_uploads_of_models(weed: Any) -> None:
    prefix = f"models/{secrets.token_hex(6)}/run"
    aggregator = weed.store("aggregator")
    aggregator.open_upload(f"{prefix}/a")
    assert aggregator.abort_uploads(f"{prefix}/") == 1


def test_an_expired_link_is_gone(weed: Any, key: str, tmp_path: Path) -> None:
    store = weed.store()
    store.put(key, b"x")
    link = store._signer.get_presigned_url(
        "GET", "hanse", key, expires=MINUTE, request_date=datetime.now(UTC) - timedelta(hours=2)
    )
    with pytest.raises(HanseError) as caught:
        HttpTransfer().fetch(link, tmp_path / "file", limit=1)
    assert caught.value.code is ErrorCode.GONE
    assert "X-Amz-Signature" not in str(caught.value)


def test_a_large_upload_by_an_expired_link_is_refused_at_once(weed: Any, key: str, tmp_path: Path) -> None:
    link = weed.store()._signer.get_presigned_url(
        "PUT", "hanse", key, expires=MINUTE, request_date=datetime.now(UTC) - timedelta(hours=2)
    )
    (tmp_path / "file").write_bytes(bytes(32 << 20))
    with pytest.raises(HanseError) as caught:
        HttpTransfer(patience=5).send_part(tmp_path / "file", PartLink(number=1, url=link, headers={}), 0, 32 << 20)
    assert caught.value.code is ErrorCode.GONE


def test_a_store_that_is_not_there_is_unavailable_after_the_patience() -> None:
    store = S3Store(f"http://127.0.0.1:{free_ports(1)[0]}", "key", "secret" * 4, "hanse", patience=0.3)
    for call in (lambda: store.put("a", b"x"), lambda: list(store.keys("a")), store.make_bucket):
        with pytest.raises(HanseError) as caught:
            call()
        assert caught.value.code is ErrorCode.UNAVAILABLE
    assert not store.ready()


def test_making_a_bucket_twice_is_no_error(weed: Any) -> None:
    weed.store().make_bucket()


class KillingFile(io.FileIO):
    """A file that has the server killed and started again when it has `after` bytes."""

    def __init__(self, path: Path, weed: Any, after: int) -> None:
        super().__init__(path, "w+")
        self._weed, self._after = weed, after

    def write(self, data: Any) -> int:
        written = super().write(data)
        if self._after and self.tell() >= self._after:
            self._after = 0
            self._weed.kill()
            self._weed.start()
        return written


def test_a_download_goes_on_when_the_killed_store_is_back(mortal: Any, key: str, tmp_path: Path) -> None:
    data = os.urandom(24 << 20)
    store = mortal.store()
    store.put(key, data)
    with KillingFile(tmp_path / "file", mortal, 8 << 20) as file:
        download(HttpClient(), store.link_get(key, MINUTE), file, limit=len(data), what="download")  # type: ignore[arg-type]
    assert (tmp_path / "file").read_bytes() == data


def test_ranges_go_on_from_where_they_were_when_the_killed_store_is_back(mortal: Any, key: str) -> None:
    data = os.urandom(32 << 20)
    store = mortal.store()
    store.put(key, data)
    starts, length = [3, 8 << 20], 24 << 20
    readers = [store.open_range(key, start, length) for start in starts]
    found = [bytearray(length) for _ in starts]
    for at in range(0, length, 4 << 20):
        if at == 8 << 20:
            mortal.kill()
            starting = threading.Thread(target=mortal.start)
            starting.start()
        for reader, buffer in zip(readers, found, strict=True):
            reader.read_into(memoryview(buffer)[at : at + (4 << 20)])
    starting.join(30)
    assert found == [data[start : start + length] for start in starts]


def test_a_range_is_unavailable_when_the_killed_store_stays_away(mortal: Any, key: str) -> None:
    store = mortal.store(patience=0.3)
    store.put(key, bytes(32 << 20))
    with store.open_range(key, 0, 32 << 20) as reader:
        mortal.kill()
        try:
            with pytest.raises(HanseError) as caught:
                reader.read_into(memoryview(bytearray(32 << 20)))
        finally:
            mortal.start()
    assert caught.value.code is ErrorCode.UNAVAILABLE


def test_an_upload_succeeds_when_the_killed_store_is_back(mortal: Any, key: str) -> None:
    data = os.urandom(32 << 20)
    store = mortal.store()
    whole = Body.of_bytes(data)
    killed: list[bool] = []

    def blocks() -> Iterator[bytes | memoryview]:
        for number, block in enumerate(whole.content()):
            if number == 20 and not killed:
                killed.append(True)
                mortal.kill()
                mortal.start()
            yield block

    upload, digest = store.open_upload(key), hashlib.sha256(data).hexdigest()
    url, headers = store.link_part(key, upload, 1, len(data), digest, MINUTE)
    checksum = {CHECKSUM: headers[CHECKSUM]}
    etag = HttpClient().request(
        "PUT", url, lambda r: r.headers["ETag"], body=Body(whole.size, blocks), headers=checksum
    )
    store.close_upload(key, upload, [(1, etag)])
    assert store.get(key, limit=len(data)) == data


def test_every_operation_waits_for_a_store_that_is_down(mortal: Any, key: str, tmp_path: Path) -> None:
    store = mortal.store()
    store.put(key, b"before")
    upload = store.open_upload(f"{key}/parts")
    part = store.put_part(f"{key}/parts", upload, 1, b"part")
    calls: list[Callable[[], object]] = [
        lambda: store.get(key, limit=6),
        lambda: store.put(f"{key}/new", b"new", if_absent=True),
        lambda: list(store.keys(key)),
        lambda: store.close_upload(f"{key}/parts", upload, [(1, part)]),
    ]
    mortal.kill()
    with ThreadPoolExecutor() as at_once:
        under_way = [at_once.submit(call) for call in calls]
        time.sleep(0.3)  # each has been refused at least once
        assert not any(call.done() for call in under_way)
        mortal.start()
    for call in under_way:
        call.result()
    assert store.get(f"{key}/parts", limit=4) == b"part"
    assert store.get(f"{key}/new", limit=3) == b"new"


def _certificate(folder: Path) -> Path:
    """The PEM file of a throwaway CA, beside `store.pem` for 127.0.0.1 and its key `store.key`."""
    now = datetime.now(UTC)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "throwaway")])

    def build(name: x509.Name, public: Any) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(ca_name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
        )

    ca = build(ca_name, ca_key.public_key()).add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "store")])
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    leaf = build(name, key.public_key()).add_extension(names, False)
    pem = serialization.Encoding.PEM
    written = {
        "ca.pem": ca.sign(ca_key, hashes.SHA256()).public_bytes(pem),
        "store.pem": leaf.sign(ca_key, hashes.SHA256()).public_bytes(pem),
        "store.key": key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    }
    for file, content in written.items():
        (folder / file).write_bytes(content)
    return folder / "ca.pem"


def test_tls_with_the_right_ca_serves_and_without_it_is_refused(
    mortal: Any, ca: Path, key: str, tmp_path: Path
) -> None:
    store = mortal.store(url=mortal.tls_url, ca=ca)
    data = os.urandom(20 << 20)
    (tmp_path / "source").write_bytes(data)
    store.put_file(key, tmp_path / "source")
    HttpTransfer(ca).fetch(store.link_get(key, MINUTE), tmp_path / "back", limit=len(data))
    assert (tmp_path / "back").read_bytes() == data
    assert list(store.keys(key)) == [key]
    for stranger in (
        lambda: mortal.store(url=mortal.tls_url).get(key, limit=len(data)),
        lambda: HttpTransfer().fetch(store.link_get(key, MINUTE), tmp_path / "back", limit=len(data)),
    ):
        with pytest.raises(HanseError, match=r"(?i)certificate") as caught:
            stranger()
        assert caught.value.code is ErrorCode.UNAVAILABLE
