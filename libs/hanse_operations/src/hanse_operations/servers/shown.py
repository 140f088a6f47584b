"""Certificates of a hub on one machine: an authority of its own, and what its servers show to other machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from hanse_fabric.durable import write_durably
from hanse_operations.bus.server import ServerTls
from hanse_operations.secrets.certificates import PemPair, is_fresh, issue, make_ca, serves


@dataclass(frozen=True, slots=True)
class Shown:
    """Files of the certificate that a hub shows; `ca` signed it, None: one that systems know."""

    cert: Path
    key: Path
    ca: Path | None = None

    @property
    def tls(self) -> ServerTls:
        """For a server whose clients need no certificate."""
        return ServerTls(self.cert, self.key)


def own_certificate(folder: Path, hosts: Sequence[str], now: datetime) -> Shown:
    """Files of a certificate for these hosts, and of the authority that signed it.

    The authority is made at the first call and stays, for sites know it by its fingerprint; the certificate is made
    anew for other hosts, and past two thirds of its life. Keys are readable by their owner alone.
    """
    folder.mkdir(exist_ok=True, mode=0o700)
    ca = _pair(folder, "ca") or _written(folder, "ca", make_ca("hanse", now))
    server = _pair(folder, "server")
    if server is None or not is_fresh(server.cert, now) or not serves(server, ca, hosts):
        _written(folder, "server", issue(ca, hosts, now))
    return Shown(folder / "server.pem", folder / "server.key", folder / "ca.pem")


def _pair(folder: Path, name: str) -> PemPair | None:
    files = folder / f"{name}.pem", folder / f"{name}.key"
    return PemPair(*(file.read_bytes() for file in files)) if all(file.exists() for file in files) else None


def _written(folder: Path, name: str, pair: PemPair) -> PemPair:
    write_durably(folder / f"{name}.key", pair.key)
    write_durably(folder / f"{name}.pem", pair.cert, mode=0o644)
    return pair
