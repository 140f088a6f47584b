"""What other machines are shown of a hub on this one: a name, an address to bind, and a certificate."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.tls import client_context, server_context

_NAME = re.compile(r"(?!-)[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*", re.IGNORECASE)
EVERYWHERE = "0.0.0.0"  # noqa: S104 - other machines are to reach it: who starts the hub says so


@dataclass(frozen=True, slots=True)
class Public:
    """How other machines reach the hub.

    Attributes:
        host: name or address by which they do; it stands in the certificate and in all links.
        bind: address of this machine that HTTP, bus and store listen on.
        cert, key: PEM files of a certificate for `host`; both or neither: then the hub makes an authority of its own.
        ca: PEM file of the authority that signed `cert`; None: one that all systems know.

    Raises:
        HanseError: INVALID_INPUT naming what cannot be.
    """

    host: str
    bind: str = EVERYWHERE
    cert: Path | None = None
    key: Path | None = None
    ca: Path | None = None

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

    def address(self, scheme: str, port: int) -> str:
        """A URL for other machines."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{port}"


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
