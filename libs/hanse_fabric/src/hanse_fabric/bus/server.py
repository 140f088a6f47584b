"""The configuration of a nats-server in operator mode."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from hanse_fabric.bus.authority import BusAuthority, write_secret
from hanse_fabric.messages.base import MAX_MESSAGE_BYTES


@dataclass(frozen=True, slots=True)
class ServerTls:
    """The server's certificate; with `ca`, clients must present one signed by it (mutual TLS)."""

    cert: Path
    key: Path
    ca: Path | None = None


def write_server_config(
    folder: Path,
    authority: BusAuthority,
    *,
    host: str,
    port: int,
    tls: ServerTls | None = None,
    websocket_port: int | None = None,
    max_store: str = "64GB",
) -> Path:
    """Write `nats.conf` and the accounts that the server starts with.

    Accounts' claims lie in the resolver's own folder: the server reads them at start, and keeps there what is pushed.
    """
    accounts = folder / "accounts"
    accounts.mkdir(parents=True, exist_ok=True)
    for public, token in authority.account_tokens().items():
        write_secret(accounts / f"{public}.jwt", token)
    lines = [
        f"listen: {json.dumps(f'{host}:{port}')}",
        'server_name: "hanse"',
        f"operator: {json.dumps(authority.operator_token())}",
        f"system_account: {json.dumps(authority.system_account)}",
        f'resolver {{ type: full, dir: {json.dumps(str(accounts))}, allow_delete: false, interval: "2m" }}',
        f"jetstream {{ store_dir: {json.dumps(str(folder / 'jetstream'))}, max_file_store: {max_store} }}",
        f"max_payload: {MAX_MESSAGE_BYTES + (64 << 10)}",
        # A client's token, with its permissions, comes in one line; the server's own limit is 4 KiB.
        "max_control_line: 65536",
        "max_connections: 65536",
        'write_deadline: "10s"',
        'ping_interval: "20s"',
    ]
    if tls is not None:
        lines.append(_tls(tls))
    if websocket_port is not None:
        inner = _tls(tls) if tls is not None else "no_tls: true"
        lines.append(f"websocket {{ listen: {json.dumps(f'{host}:{websocket_port}')}\n {inner} }}")
    path = folder / "nats.conf"
    write_secret(path, "\n".join(lines) + "\n")
    return path


def _tls(tls: ServerTls) -> str:
    parts = [f"cert_file: {json.dumps(str(tls.cert))}", f"key_file: {json.dumps(str(tls.key))}"]
    if tls.ca is not None:
        parts += [f"ca_file: {json.dumps(str(tls.ca))}", "verify: true"]
    return "tls { " + ", ".join(parts) + " }"
