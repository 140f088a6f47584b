"""Addresses of the bus: one server or several of one cluster, over TCP (nats, tls) or WebSocket (ws, wss)."""

from __future__ import annotations

from urllib.parse import urlsplit

from hanse_fabric.errors import HanseError, invalid

TCP = frozenset({"nats", "tls"})
WEBSOCKET = frozenset({"ws", "wss"})
EXPECTED = (
    "addresses such as nats://host:4222, tls://host:4222 or wss://host, several of one cluster separated by commas, "
    "all TCP or all WebSocket, without names and passwords"
)


def servers_of(url: str, field: str = "bus") -> list[str]:
    """The servers that `url` names, separated by commas; any of them will do, and another when one is lost.

    Args:
        field: what an error calls it, such as `HANSE_BUS_URL`.

    Raises:
        HanseError: INVALID_INPUT for another scheme, no host, a bad port, TCP and WebSocket mixed, or credentials in
            the address, which would be shown in logs.
    """
    servers = [part.strip() for part in url.split(",")]
    schemes = {_scheme(server, url, field) for server in servers}
    if not (schemes <= TCP or schemes <= WEBSOCKET):
        raise invalid(field, url, EXPECTED)
    return servers


def _scheme(server: str, url: str, field: str) -> str:
    try:
        parts = urlsplit(server)
        # Reading the port checks it.
        sound = bool(parts.hostname) and (parts.port is None or parts.port > 0) and parts.username is None
    except ValueError:
        sound = False
    if not sound or parts.scheme not in TCP | WEBSOCKET:
        raise _invalid(server, url, field)
    return parts.scheme


def _invalid(server: str, url: str, field: str) -> HanseError:
    return invalid(field, "an address with a name or password" if "@" in server else url, EXPECTED)
