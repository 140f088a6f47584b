"""What all tests share: a real nats-server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from hanse_fabric.bus.server import ServerTls
from servers import NatsServer


@pytest.fixture(scope="session")
def new_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., NatsServer]]:
    """Starts servers, each with all streams unless `bare`, and ends them with the session."""
    started: list[NatsServer] = []

    def new(*, tls: ServerTls | None = None, bare: bool = False) -> NatsServer:
        server = NatsServer(tmp_path_factory.mktemp("nats"), tls=tls)
        started.append(server)
        server.start()
        if not bare:
            # A thread of its own: whoever asks may be inside an event loop.
            with ThreadPoolExecutor(1) as pool:
                pool.submit(asyncio.run, server.provision()).result(60)
        return server

    yield new
    for server in started:
        server.kill()


@pytest.fixture(scope="session")
def nats_server(new_nats: Callable[..., NatsServer]) -> NatsServer:
    """The session's server; tests use projects of their own and leave it running."""
    return new_nats()


@pytest.fixture
def mortal_nats(new_nats: Callable[..., NatsServer]) -> NatsServer:
    """A server of the test's own, which it may kill."""
    return new_nats()
