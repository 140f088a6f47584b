"""How often a client tries to reach a bus that is away: rarer and rarer, and not all clients at once."""

from __future__ import annotations

from hanse_fabric.bus.connection import LONGEST_PAUSE_S, SHORTEST_PAUSE_S, Connection


def tried(connection: Connection) -> float:
    """The pause before the next attempt, in seconds."""
    return float(connection.client.options["reconnect_time_wait"])


async def test_pauses_grow_to_the_longest_and_no_two_clients_have_the_same() -> None:
    pauses: list[list[float]] = []
    for _ in range(100):
        connection = Connection("nats://127.0.0.1:4222", "_INBOX.coordinator")
        pauses.append([])
        for _ in range(12):
            await connection._on_error(ConnectionRefusedError())
            pauses[-1].append(tried(connection))
    by_attempt = list(zip(*pauses, strict=True))
    for attempt, of_clients in enumerate(by_attempt):
        most = min(LONGEST_PAUSE_S, SHORTEST_PAUSE_S * 2**attempt)
        assert most / 2 <= min(of_clients) < max(of_clients) <= most
        assert len(set(of_clients)) == 100
    assert min(by_attempt[-1]) >= LONGEST_PAUSE_S / 2


async def test_the_pause_is_short_again_after_a_connection() -> None:
    connection = Connection("nats://127.0.0.1:4222", "_INBOX.coordinator")
    for _ in range(12):
        await connection._on_error(ConnectionRefusedError())
    await connection._on_reconnected()
    await connection._on_disconnected()
    await connection._on_error(ConnectionRefusedError())
    assert tried(connection) <= SHORTEST_PAUSE_S


async def test_an_error_while_connected_is_no_attempt() -> None:
    connection = Connection("nats://127.0.0.1:4222", "_INBOX.coordinator")
    await connection._on_reconnected()
    await connection._on_error(RuntimeError("slow consumer"))
    assert "reconnect_time_wait" not in connection.client.options
