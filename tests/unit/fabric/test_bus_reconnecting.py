"""How often clients try to reach a bus that is away: rarer and rarer, and not all clients at once.

The clients are the real ones, in virtual time; the server is a model of one with a limit: it does so many handshakes a
second, in the order in which they came, those too whose clients have given up meanwhile.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from statistics import median
from typing import Any

import nats.aio.client
import pytest
from nats.aio.transport import Transport

from clocks import in_virtual_time
from hanse_fabric.bus.connection import Connection
from hanse_fabric.bus.pauses import (
    FIRST_PATIENCE_S,
    FIRST_PAUSE_S,
    LONGEST_PATIENCE_S,
    LONGEST_PAUSE_S,
    STARTING_PAUSE_S,
    Pauses,
)
from hanse_fabric.virtual_time import VirtualClock

HANDSHAKES_PER_S = 60.0
"""Few, so that a thousand clients are a crowd."""


class Server:
    """What all clients connect to."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock, self._free_at, self._back_at, self._lost_at = clock, 0.0, 0.0, 0.0
        self.attempts = Counter[int]()
        """By the second after the loss."""
        self._wires: list[Wire] = []
        self.handshakes_per_s = 1e9

    def come(self, wire: Wire) -> None:
        """Raises ConnectionRefusedError while it is away."""
        self.attempts[int(self._clock.monotonic() - self._lost_at)] += 1
        if self._clock.monotonic() < self._back_at:
            raise ConnectionRefusedError
        self._wires.append(wire)

    async def handshake(self) -> None:
        self._free_at = max(self._free_at, self._clock.monotonic()) + 1 / self.handshakes_per_s
        await asyncio.sleep(self._free_at - self._clock.monotonic())

    def lose(self, *, away: float, handshakes_per_s: float = HANDSHAKES_PER_S) -> None:
        """All connections end; nobody gets in for `away` seconds."""
        self._lost_at, self.handshakes_per_s = self._clock.monotonic(), handshakes_per_s
        self._back_at = self._lost_at + away
        self.attempts.clear()
        for wire in self._wires:
            wire.lose()
        self._wires.clear()


class Wire(Transport):
    """A client's connection to it."""

    def __init__(self, server: Server) -> None:
        self._server, self._open, self._greeted = server, False, False
        self._incoming = asyncio.Queue[bytes]()

    def lose(self) -> None:
        self._incoming.put_nowait(b"")

    async def connect(self, uri: Any, buffer_size: int, connect_timeout: int) -> None:
        self._server.come(self)
        self._open = True

    async def connect_tls(self, *_: Any) -> None:
        raise AssertionError("the handshake is in the greeting here")

    async def readline(self) -> bytes:
        if not self._greeted:
            self._greeted = True
            await self._server.handshake()
            return b'INFO {"max_payload":1024}\r\n'
        return await self.read(0)

    async def read(self, buffer_size: int) -> bytes:
        data = await self._incoming.get()
        if not data:
            raise ConnectionResetError
        return data

    def write(self, payload: bytes) -> None:
        for _ in range(bytes(payload).count(b"PING\r\n")):
            self._incoming.put_nowait(b"PONG\r\n")

    def writelines(self, payload: list[bytes]) -> None:
        for each in payload:
            self.write(each)

    async def drain(self) -> None: ...

    async def wait_closed(self) -> None: ...

    def close(self) -> None:
        self._open = False

    def at_eof(self) -> bool:
        return False

    def __bool__(self) -> bool:
        return self._open


class Crowd:
    """So many clients, connected."""

    def __init__(self, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
        random.seed(1)  # what is drawn is the same in each test run, as time is
        self._clock, self.server = clock, Server(clock)
        self.clients: list[Connection] = []
        monkeypatch.setattr(nats.aio.client, "TcpTransport", lambda: Wire(self.server))

    async def gather(self, count: int) -> None:
        for _ in range(count):
            self.clients.append(
                await Connection.open("nats://hub:4222", "site", None, inbox_prefix="_INBOX", tls=None, timeout=60)
            )

    async def lose(self, *, away: float, handshakes_per_s: float = HANDSHAKES_PER_S) -> list[float]:
        """Seconds after the loss at which each of the clients was connected again, the first first."""
        begun, seconds = self._clock.monotonic(), list[float]()
        for client in self.clients:
            client.on_reconnect.append(lambda: seconds.append(self._clock.monotonic() - begun))
        self.server.lose(away=away, handshakes_per_s=handshakes_per_s)
        while len(seconds) < len(self.clients):  # noqa: ASYNC110 - of many clients, in virtual time
            await asyncio.sleep(0.1)
        return seconds

    async def close(self) -> None:
        for client in self.clients:
            await client.close()


@in_virtual_time
async def test_a_small_hub_has_its_sites_back_in_a_second(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(clock, monkeypatch)
    await crowd.gather(20)
    seconds = await crowd.lose(away=0)
    assert max(seconds) <= FIRST_PAUSE_S + 20 / HANDSHAKES_PER_S + 0.1
    assert crowd.server.attempts.total() == 20
    await crowd.close()


@in_virtual_time
async def test_who_was_away_shortly_is_back_in_as_long_again(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd = Crowd(clock, monkeypatch)
    await crowd.gather(50)
    away = 5.0
    seconds = await crowd.lose(away=away)
    assert median(seconds) <= 2 * away
    # A pause is at most twice as long as what has passed before it, and a second.
    assert max(seconds) <= 3 * away + 2 * FIRST_PAUSE_S
    await crowd.close()


@in_virtual_time
async def test_thousands_are_back_about_as_soon_as_the_server_can_and_few_come_twice(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd, count = Crowd(clock, monkeypatch), 1000
    await crowd.gather(count)
    seconds = await crowd.lose(away=0)
    possible = count / HANDSHAKES_PER_S
    assert max(seconds) <= 4 * possible
    assert median(seconds) <= 2 * possible
    assert crowd.server.attempts.total() <= 3 * count
    await crowd.close()


@in_virtual_time
async def test_control_whose_patience_does_not_grow_comes_again_and_again(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pauses, "took_too_long", lambda _: None)
    crowd, count = Crowd(clock, monkeypatch), 600
    await crowd.gather(count)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(4 * count / 20):
            await crowd.lose(away=0, handshakes_per_s=20)
    assert crowd.server.attempts.total() > 4 * count
    await crowd.close()


@in_virtual_time
async def test_a_server_that_stays_away_is_asked_rarely(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd, count, away = Crowd(clock, monkeypatch), 300, 150
    await crowd.gather(count)
    seconds = await crowd.lose(away=away)
    late = [crowd.server.attempts[second] for second in range(60, away)]
    assert median(late) <= count / (LONGEST_PAUSE_S / 2)
    assert max(late) <= 4 * count / (LONGEST_PAUSE_S / 2)
    assert crowd.server.attempts.total() <= count * (6 + away / (LONGEST_PAUSE_S / 2))
    assert max(seconds) <= away + LONGEST_PAUSE_S + 2 * count / HANDSHAKES_PER_S
    await crowd.close()


@in_virtual_time
async def test_who_renews_a_token_waits_for_nobody(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(clock, monkeypatch)
    await crowd.gather(1)
    begun, back = clock.monotonic(), asyncio.Event()
    crowd.clients[0].on_reconnect.append(back.set)
    for _ in range(5):
        await crowd.clients[0].renew("token")
        await back.wait()
        back.clear()
    assert clock.monotonic() - begun < 0.1
    await crowd.close()


def test_pauses_grow_to_the_longest_and_begin_anew_after_a_connection() -> None:
    drawn = [Pauses() for _ in range(400)]
    assert max(each.next() for each in drawn) <= STARTING_PAUSE_S
    for each in drawn:
        each.connected()
    by_attempt = [[each.next() for each in drawn] for _ in range(12)]
    for attempt, of_clients in enumerate(by_attempt):
        longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**attempt)
        shortest = longest / 2 if attempt else 0.0
        assert shortest <= min(of_clients) < 0.6 * longest < 0.9 * longest < max(of_clients) <= longest
        assert len(set(of_clients)) == len(of_clients)
    drawn[0].connected()
    assert drawn[0].next() <= FIRST_PAUSE_S


def test_patience_grows_with_a_busy_server_and_ends_with_a_connection() -> None:
    pauses, seen = Pauses(), []
    for _ in range(5):
        seen.append(pauses.patience)
        pauses.took_too_long()
    assert seen[:2] == [FIRST_PATIENCE_S, 2 * FIRST_PATIENCE_S]
    assert seen[-1] == LONGEST_PATIENCE_S
    pauses.connected()
    assert pauses.patience == FIRST_PATIENCE_S
