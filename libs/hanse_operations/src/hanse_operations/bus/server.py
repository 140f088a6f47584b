"""The configuration of a nats-server in operator mode."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hanse_fabric.bus.authority import BusAuthority
from hanse_fabric.durable import write_durably
from hanse_fabric.messages.base import MAX_MESSAGE_BYTES
from hanse_fabric.names import HUB_REGION

ASKS_EVERY = "2s"
"""A server of a cluster, or a leaf node, that was away asks the others for newer claims, after so long first: till then
it would let in who was revoked meanwhile. Where all have the same, question and answer are a hash of 32 bytes."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    """The server's certificate; with `ca`, clients must present one signed by it (mutual TLS)."""

    cert: Path
    key: Path
    ca: Path | None = None


@dataclass(frozen=True, slots=True)
class WebSocketListener:
    """Where clients connect by WebSocket; without `tls` by ws://, else by wss://."""

    host: str
    port: int
    tls: ServerTls | None = None


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A server's place in a cluster, whose servers copy JetStream's streams among them.

    Attributes:
        name: the server's own name, the same after a restart.
        port: where the others connect to, at the server's `host`.
        routes: addresses of the others, such as `nats-route://nats-0:6222`; its own among them does no harm.
        tls: certificate for these connections; its `ca` makes them mutual.
    """

    name: str
    port: int
    routes: Sequence[str]
    cluster: str = "hanse"
    tls: ServerTls | None = None


@dataclass(frozen=True, slots=True)
class LeafListener:
    """Where leaf nodes connect to."""

    port: int
    tls: ServerTls | None = None


@dataclass(frozen=True, slots=True)
class LeafRemote:
    """The hub's servers that this one is a leaf of: it has no streams of its own, and passes its sites' requests on.

    Attributes:
        urls: such as `nats-leaf://nats-0:7422`.
        credentials: `.creds` file of a user of the region's account (`BusAuthority.leaf_credentials`).
        region: whose sites connect there.
        system_credentials: `.creds` file of the system account (`BusAuthority.leaf_system_credentials`), by which the
            leaf learns who was revoked.
        ca: PEM file of the CA that signed the hub's certificate, where `urls` are `tls://`.
        name: the server's own name.
    """

    urls: Sequence[str]
    credentials: Path
    system_credentials: Path | None = None
    ca: Path | None = None
    name: str = "hanse-leaf"
    region: str = HUB_REGION


def write_server_config(
    folder: Path,
    authority: BusAuthority,
    *,
    host: str,
    port: int,
    tls: ServerTls | None = None,
    websocket: WebSocketListener | None = None,
    cluster: ClusterNode | None = None,
    leaf: LeafListener | LeafRemote | None = None,
    monitoring_port: int | None = None,
    storage: int = 64 << 30,
) -> Path:
    """Write `nats.conf` and the accounts that the server starts with.

    Accounts' claims lie in the resolver's own folder: the server reads them at start, and keeps there what is pushed.
    Claims that lie there already stay: they may hold revocations that this folder of keys knows nothing of.

    Args:
        storage: bytes that JetStream may have on the disk.
    """
    accounts = folder / "accounts"
    accounts.mkdir(parents=True, exist_ok=True)
    for public, token in authority.account_tokens().items():
        if not (accounts / f"{public}.jwt").exists():
            write_durably(accounts / f"{public}.jwt", token)
    lines = [
        f"listen: {json.dumps(f'{host}:{port}')}",
        f"server_name: {json.dumps(_name(cluster, leaf))}",
        f"operator: {json.dumps(authority.operator_token())}",
        f"system_account: {json.dumps(authority.system_account)}",
        f'resolver {{ type: full, dir: {json.dumps(str(accounts))}, allow_delete: false, interval: "{ASKS_EVERY}" }}',
        f"max_payload: {MAX_MESSAGE_BYTES + (64 << 10)}",
        # A client's token, with its permissions, comes in one line; the server's own limit is 4 KiB.
        "max_control_line: 65536",
        "max_connections: 65536",
        # After a restart thousands may connect at once; by default the server allows 2 s to check each client's token.
        "authorization { timeout: 30 }",
        'write_deadline: "10s"',
        'ping_interval: "20s"',
    ]
    if not isinstance(leaf, LeafRemote):
        store = json.dumps(str(folder / "jetstream"))
        lines.append(f"jetstream {{ store_dir: {store}, max_file_store: {storage} }}")
    if tls is not None:
        lines.append(_tls(tls, crowd=True))
    if cluster is not None:
        lines.append(_cluster(cluster, host))
    if leaf is not None:
        lines.append(_leaf(leaf, host, authority))
    if monitoring_port is not None:
        lines.append(f"http: {json.dumps(f'{host}:{monitoring_port}')}")
    if websocket is not None:
        inner = _tls(websocket.tls, crowd=True) if websocket.tls is not None else "no_tls: true"
        listen = json.dumps(f"{websocket.host}:{websocket.port}")
        lines.append(f'websocket {{ listen: {listen}\n handshake_timeout: "30s"\n {inner} }}')
    path = folder / "nats.conf"
    write_durably(path, "\n".join(lines) + "\n")
    return path


def _name(cluster: ClusterNode | None, leaf: LeafListener | LeafRemote | None) -> str:
    if cluster is not None:
        return cluster.name
    return leaf.name if isinstance(leaf, LeafRemote) else "hanse"


def _cluster(node: ClusterNode, host: str) -> str:
    lines = [f"name: {json.dumps(node.cluster)}", f"listen: {json.dumps(f'{host}:{node.port}')}"]
    # Clients are given the addresses that they can reach; a server's own may be inside only.
    lines.append("no_advertise: true")
    lines.append(f"routes: {json.dumps(list(node.routes))}")
    if node.tls is not None:
        lines.append(_tls(node.tls))
    return "cluster {\n  " + "\n  ".join(lines) + "\n}"


def _leaf(leaf: LeafListener | LeafRemote, host: str, authority: BusAuthority) -> str:
    if isinstance(leaf, LeafListener):
        inner = [f"listen: {json.dumps(f'{host}:{leaf.port}')}", "no_advertise: true"]
        if leaf.tls is not None:
            inner.append(_tls(leaf.tls))
        return "leafnodes {\n  " + "\n  ".join(inner) + "\n}"
    accounts = [(leaf.credentials, authority.account_of(leaf.region))]
    if leaf.system_credentials is not None:
        accounts.append((leaf.system_credentials, authority.system_account))
    remotes = ",\n    ".join(_remote(leaf, creds, account) for creds, account in accounts)
    return f"leafnodes {{\n  remotes: [\n    {remotes}\n  ]\n}}"


def _remote(leaf: LeafRemote, creds: Path, account: str) -> str:
    remote = [f"urls: {json.dumps(list(leaf.urls))}", f"credentials: {json.dumps(str(creds))}"]
    remote.append(f"account: {json.dumps(account)}")
    if leaf.ca is not None:
        remote.append(f"tls {{ ca_file: {json.dumps(str(leaf.ca))} }}")
    return "{ " + ", ".join(remote) + " }"


def _tls(tls: ServerTls, *, crowd: bool = False) -> str:
    """`crowd`: thousands may come at once. The server's own 2 s for a handshake would then throw away most of those
    that it has begun, and they begin anew."""
    parts = [f"cert_file: {json.dumps(str(tls.cert))}", f"key_file: {json.dumps(str(tls.key))}"]
    if crowd:
        parts.append("timeout: 30")
    if tls.ca is not None:
        parts += [f"ca_file: {json.dumps(str(tls.ca))}", "verify: true"]
    return "tls { " + ", ".join(parts) + " }"
