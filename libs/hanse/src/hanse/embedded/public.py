"""What other machines are shown of a hub on this one: a name, an address to bind, and a certificate."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.tls import client_context, server_context

_NAME = re.compile(r"(?!-)[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*", re.IGNORECASE)
EVERYWHERE = "0.0.0.0"  # noqa: S104 - other machines are to reach it: who starts the hub says so
SCHEMES = {"http": "https", "public bus": "wss", "public store": "https", "console": "https"}
"""Of the addresses that other machines use, by what they are for."""
URL_OPTIONS = {"http": "--url", "public bus": "--bus-url", "public store": "--store-url", "console": "--console-url"}


@dataclass(frozen=True, slots=True)
class Public:
    """How other machines reach the hub.

    Attributes:
        host: name or address by which they do; it stands in the certificate and in all links.
        bind: address of this machine that HTTP, bus and store listen on.
        cert, key: PEM files of a certificate for `host`; both or neither: then the hub makes an authority of its own.
        ca: PEM file of the authority that signed `cert`; None: one that all systems know.
        told: addresses that other machines are told in place of `host` with a port, by their use (see `SCHEMES`): those
            of a front that leads here.

    Raises:
        HanseError: INVALID_INPUT naming what cannot be.
    """

    host: str
    bind: str = EVERYWHERE
    cert: Path | None = None
    key: Path | None = None
    ca: Path | None = None
    told: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (_is_address(self.host) or _NAME.fullmatch(self.host)):
            raise invalid("--public", self.host, "a name or an address of this machine, without scheme and port")
        if not _is_address(self.bind):
            raise invalid("--bind", self.bind, "an address of this machine, such as 0.0.0.0 for all that it has")
        if (self.cert is None) != (self.key is None):
            raise HanseError(ErrorCode.INVALID_INPUT, "--cert, --key: they belong together; only one is given")
        if self.cert is not None and self.key is not None:
            server_context(self.cert, self.key)
        if self.ca is not None:
            if self.cert is None:
                raise HanseError(ErrorCode.INVALID_INPUT, "--ca: it belongs to a certificate, and no --cert is given")
            client_context(self.ca)
        for use, url in self.told.items():
            _check_address(use, url)

    def address(self, scheme: str, port: int) -> str:
        """A URL of a port of this machine."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{port}"

    def told_address(self, use: str, port: int) -> str:
        """The URL that other machines are told."""
        return self.told.get(use) or self.address(SCHEMES[use], port)

    def hosts(self) -> Iterator[str]:
        """Names and addresses by which other machines ask for the hub: its certificate must have all of them."""
        yield self.host
        for url in self.told.values():
            yield urlsplit(url).hostname or self.host


def _check_address(use: str, url: str) -> None:
    scheme = SCHEMES[use]
    expected = f"{scheme}://HOST or {scheme}://HOST:PORT, without a path"
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        named = f"[{host}]" if ":" in host else host
        forms = {f"{scheme}://{named}", f"{scheme}://{named}:{parts.port}"}
    except ValueError:
        raise invalid(URL_OPTIONS[use], url, expected) from None
    if url.lower() not in forms or not (_is_address(host) or _NAME.fullmatch(host)):
        raise invalid(URL_OPTIONS[use], url, expected)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
