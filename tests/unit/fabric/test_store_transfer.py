"""Transfers against servers that misbehave, and links to a directory. The servers are sockets of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from clocks import HandClock
from directory_transfer import DirectoryTransfer
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.uploads import PartLink
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.store.links import LinkSigner
from hanse_fabric.store.transfer import Came, HttpTransfer
from hanse_fabric.tensors.digest import Digester, digest_bytes

MINUTE = timedelta(minutes=1)
Answer = Callable[[BaseHTTPRequestHandler, int], None]


@contextmanager
def serving(answer: Answer) -> Iterator[str]:
    """The address of a server that answers the n-th request (from 0) by `answer(handler, n)`."""
    asked: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_request(self) -> None:
            asked.append(len(asked))
            answer(self, asked[-1])
            self.close_connection = True

        do_GET = do_PUT = handle_request  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/object?signature=secret"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def reply(handler: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    handler.send_response(status)
    for name, value in ({"Content_Length": str(len(body))} | headers).items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def test_a_download_that_breaks_off_goes_on_where_it_was(tmp_path: Path) -> None:
    data, ranges = bytes(range(256)) * 8192, []

    def answer(handler: BaseHTTPRequestHandler, number: int) -> None:
        asked = handler.headers.get("Range")
        ranges.append(asked)
        start = int(asked[6:-1]) if asked else 0
        rest = data[start:]
        shown = rest[: 1 << 20] if number == 0 else rest
        reply(handler, 206 if asked else 200, shown, Content_Length=str(len(rest)), ETag='"1"')

    came = Came(digester=Digester())
    with serving(answer) as url:
        HttpTransfer().fetch(url, tmp_path / "file", limit=len(data), came=came)
    assert (tmp_path / "file").read_bytes() == data
    assert ranges[0] is None
    assert ranges[1:] == [f"bytes={1 << 20}-"]
    assert (came.bytes, came.digested) == (len(data), digest_bytes(data))


def test_bytes_that_came_before_are_in_no_digest_of_those_that_came_now(tmp_path: Path) -> None:
    data = bytes(range(256))
    (tmp_path / "file").write_bytes(data[:100])
    came = Came(bytes=100, digester=Digester())
    with serving(lambda handler, _: reply(handler, 206, data[100:])) as url:
        HttpTransfer().fetch(url, tmp_path / "file", limit=len(data), came=came)
    assert (tmp_path / "file").read_bytes() == data
    assert came.digested is None


def test_a_download_begins_anew_when_the_object_changed_meanwhile(tmp_path: Path) -> None:
    old, new = b"o" * (2 << 20), b"n" * (2 << 20)

    def answer(handler: BaseHTTPRequestHandler, number: int) -> None:
        asked = handler.headers.get("Range")
        if number == 0:
            reply(handler, 200, old[: 1 << 20], Content_Length=str(len(old)), ETag='"old"')
        elif asked:
            reply(handler, 206, new[int(asked[6:-1]) :], ETag='"new"')
        else:
            reply(handler, 200, new, ETag='"new"')

    came = Came(digester=Digester())
    with serving(answer) as url:
        HttpTransfer().fetch(url, tmp_path / "file", limit=len(new), came=came)
    assert (tmp_path / "file").read_bytes() == new
    assert came.digested == digest_bytes(new)


def test_more_than_announced_is_refused_while_it_comes(tmp_path: Path) -> None:
    def answer(handler: BaseHTTPRequestHandler, number: int) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        chunk = b"%x\r\n" % (1 << 20) + bytes(1 << 20) + b"\r\n"
        try:
            while True:
                handler.wfile.write(chunk)
        except OSError:
            return

    with serving(answer) as url, pytest.raises(HanseError) as caught:
        HttpTransfer().fetch(url, tmp_path / "file", limit=3 << 20)
    assert caught.value.code is ErrorCode.TOO_LARGE
    assert list(tmp_path.iterdir()) == []


def part(url: str) -> PartLink:
    return PartLink(number=1, url=url, headers={})


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    requests: list[str] = []

    def elsewhere(handler: BaseHTTPRequestHandler, number: int) -> None:
        requests.append(handler.path)
        reply(handler, 200, b"stolen")

    with serving(elsewhere) as other, serving(lambda handler, _: reply(handler, 307, Location=other)) as url:
        (tmp_path / "update").write_bytes(b"x")
        with pytest.raises(HanseError) as sent:
            HttpTransfer(patience=1).send_part(tmp_path / "update", part(url), 0, 1)
        with pytest.raises(HanseError) as fetched:
            HttpTransfer(patience=1).fetch(url, tmp_path / "file", limit=10)
    assert sent.value.code is fetched.value.code is ErrorCode.FORBIDDEN
    assert requests == []


def test_a_server_that_is_busy_is_asked_again(tmp_path: Path) -> None:
    def answer(handler: BaseHTTPRequestHandler, number: int) -> None:
        reply(handler, 503) if number < 2 else reply(handler, 200, b"at last")

    with serving(answer) as url:
        HttpTransfer().fetch(url, tmp_path / "file", limit=10)
    assert (tmp_path / "file").read_bytes() == b"at last"


def test_a_server_that_stays_busy_is_unavailable_and_no_signature_is_told(tmp_path: Path) -> None:
    with serving(lambda handler, _: reply(handler, 503)) as url, pytest.raises(HanseError) as caught:
        HttpTransfer(patience=0.2).fetch(url, tmp_path / "file", limit=10)
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert "secret" not in str(caught.value)


def test_closing_ends_the_wait_for_a_server(tmp_path: Path) -> None:
    asked = threading.Event()

    def answer(handler: BaseHTTPRequestHandler, _: int) -> None:
        asked.set()
        reply(handler, 503)

    transfer = HttpTransfer(patience=100)
    caught: list[HanseError] = []

    def fetch(url: str) -> None:
        try:
            transfer.fetch(url, tmp_path / "file", limit=10)
        except HanseError as error:
            caught.append(error)

    with serving(answer) as url:
        fetching = threading.Thread(target=fetch, args=(url,))
        fetching.start()
        assert asked.wait(60)
        transfer.close()
        fetching.join(20)
    assert [error.code for error in caught] == [ErrorCode.UNAVAILABLE]


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://host/a", "/etc/passwd", "http:///a", ""])
def test_only_web_addresses_are_fetched(url: str, tmp_path: Path) -> None:
    (tmp_path / "update").write_bytes(b"x")
    for call in (
        lambda: HttpTransfer().fetch(url, tmp_path / "file", limit=10),
        lambda: HttpTransfer().send_part(tmp_path / "update", part(url), 0, 1),
    ):
        with pytest.raises(HanseError) as caught:
            call()
        assert caught.value.code is ErrorCode.INVALID_INPUT


def test_a_file_that_is_absent_is_not_sent(tmp_path: Path) -> None:
    with pytest.raises(HanseError) as caught:
        HttpTransfer().send_part(tmp_path / "absent", part("http://127.0.0.1:9/object"), 0, 1)
    assert caught.value.code is ErrorCode.NOT_FOUND


def test_a_directory_link_expires(tmp_path: Path) -> None:
    DirectoryStore(tmp_path).put("models/a", b"x")
    clock = HandClock()
    signer = LinkSigner.of(tmp_path, clock)
    url = signer.sign("GET", tmp_path / "objects/models/a", MINUTE)
    clock.advance(60)
    assert signer.open("GET", url) == (tmp_path / "objects/models/a", "")
    clock.advance(1)
    with pytest.raises(HanseError) as caught:
        signer.open("GET", url)
    assert caught.value.code is ErrorCode.GONE


@pytest.mark.parametrize(
    "change",
    [
        lambda url: url.replace("models/a", "models/b"),
        lambda url: url.replace("models/a", "../link.key"),
        lambda url: url.replace("until=", "until=9"),
        lambda url: url[:-1] + ("0" if url[-1] != "0" else "1"),
        lambda url: url.split("?")[0],
        lambda url: url.replace("until=", "until=%C2%B2"),
    ],
)
def test_a_directory_link_that_was_changed_is_refused(change: Callable[[str], str], tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "store")
    store.put("models/a", b"x")
    store.put("models/b", b"y")
    with pytest.raises(HanseError) as caught:
        DirectoryTransfer(tmp_path / "store").fetch(
            change(store.link_get("models/a", MINUTE)), tmp_path / "file", limit=1
        )
    assert caught.value.code is ErrorCode.FORBIDDEN


def test_a_link_of_another_directory_is_refused(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "one")
    store.put("models/a", b"x")
    DirectoryStore(tmp_path / "two")
    with pytest.raises(HanseError) as caught:
        DirectoryTransfer(tmp_path / "two").fetch(store.link_get("models/a", MINUTE), tmp_path / "file", limit=1)
    assert caught.value.code is ErrorCode.FORBIDDEN


def test_the_link_secret_of_a_directory_is_private_and_stays_the_same(tmp_path: Path) -> None:
    first = LinkSigner.of(tmp_path)
    assert LinkSigner.of(tmp_path).secret == first.secret
    assert (tmp_path / "link.key").stat().st_mode & 0o777 == 0o600
    assert str(first.secret) not in repr(first)
