"""A real nats-server for tests: in operator mode, with all streams, killed and started again at the same address."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from hanse_fabric.bus.authority import BusAuthority
from hanse_fabric.bus.jwt import credentials
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import SystemClock
from hanse_fabric.names import HUB_REGION
from hanse_fabric.subjects import Role
from hanse_operations.bus.provision import provision
from hanse_operations.bus.server import ClusterNode, LeafListener, LeafRemote, ServerTls, WebSocketListener
from hanse_operations.servers.nats import nats_program
from hanse_operations.servers.program import free_ports
from hanse_operations.state.migrations import migrate

Connect = Callable[[Role], Awaitable[Bus]]
"""Makes the connection of a service."""


async def stand_ready(url: str, authority: BusAuthority, tls: ssl.SSLContext | None = None) -> None:
    """What the state job does, without which no service starts: streams, and the version of the stored state."""
    creds = authority.service_credentials(Role.PROVISIONER)
    await provision(url, creds.read_text(), tls=tls)
    bus = await NatsBus.connect(url, Role.PROVISIONER.value, creds=creds, tls=tls)
    await migrate(bus, SystemClock())
    await bus.close()


class NatsServer:
    """A server in `folder`. `start` returns when it answers; `kill` is SIGKILL, and `start` then finds the state."""

    def __init__(
        self,
        folder: Path,
        *,
        tls: ServerTls | None = None,
        authority: BusAuthority | None = None,
        cluster: ClusterNode | None = None,
        leaf: LeafListener | LeafRemote | None = None,
        websocket_port: int | None = None,
        storage: int = 64 << 30,
    ) -> None:
        self.folder = folder
        self.authority = authority or BusAuthority(folder / "authority")
        self.port = free_ports(1)[0]
        self._tls, self._cluster, self._leaf, self._websocket_port = tls, cluster, leaf, websocket_port
        self._storage = storage
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"{'tls' if self._tls else 'nats'}://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of a server that was started."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        web = None
        if self._websocket_port is not None:
            web = WebSocketListener("127.0.0.1", self._websocket_port, self._tls)
        program = nats_program(
            self.folder, self.authority, port=self.port, tls=self._tls, cluster=self._cluster, leaf=self._leaf,
            websocket=web, storage=self._storage,
        )  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(program.argv, stdout=log, stderr=subprocess.STDOUT)
        end = time.monotonic() + 60
        while not program.answers():
            assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
            assert time.monotonic() < end, "nats-server does not answer"
            time.sleep(0.01)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)

    async def restart(self) -> None:
        """SIGKILL, and start again."""
        await asyncio.to_thread(self.kill)
        self.start()

    async def provision(self, tls: ssl.SSLContext | None = None) -> None:
        await stand_ready(self.url, self.authority, tls)

    async def connect(self, role: Role, **options: object) -> NatsBus:
        """The connection of a service."""
        creds = self.authority.service_credentials(role)
        return await NatsBus.connect(self.url, role.value, creds=creds, **{"confirm": True} | options)  # type: ignore[arg-type]

    async def enrol(self, project: str, participant: str, *, region: str = HUB_REGION) -> tuple[NatsBus, str]:
        """The connection of a participant, and its public key."""
        key = KeyPair.create(KeyKind.USER)
        token = self.authority.participant_jwt(project, participant, key.public, region=region)
        bus = await NatsBus.connect(self.url, f"{project}.{participant}", creds=credentials(token, key))
        return bus, key.public


class NatsCluster:
    """Three servers in folders of `folder` that copy their streams among them, with listeners for leaf nodes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = BusAuthority(folder / "authority")
        routes, self.leaf_ports = free_ports(3), free_ports(3)
        urls = [f"nats-route://127.0.0.1:{port}" for port in routes]
        self.servers = [
            NatsServer(
                folder / f"nats-{number}",
                authority=self.authority,
                cluster=ClusterNode(f"nats-{number}", routes[number], urls),
                leaf=LeafListener(self.leaf_ports[number]),
            )
            for number in range(3)
        ]

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self.servers]

    @property
    def url(self) -> str:
        """All servers, as clients are given them."""
        return ",".join(self.urls)

    def start(self) -> None:
        for server in self.servers:
            server.folder.mkdir(exist_ok=True)
            server.start()

    def kill(self) -> None:
        for server in self.servers:
            server.kill()

    def leaf(self, folder: Path) -> NatsServer:
        """A leaf node of the cluster's last region, not started yet."""
        urls = [f"nats-leaf://127.0.0.1:{port}" for port in self.leaf_ports]
        region, name = self.authority.regions[-1], folder.name
        own, system = folder / "leaf.creds", folder / "leaf-system.creds"
        for path, text in zip((own, system), self.authority.leaf_credentials(region, name), strict=True):
            path.write_text(text)
        remote = LeafRemote(urls, own, system_credentials=system, region=region, name=name)
        return NatsServer(folder, authority=self.authority, leaf=remote)

    async def connect(self, role: Role) -> NatsBus:
        """The connection of a service, which like every service's reads what was confirmed."""
        creds = self.authority.service_credentials(role)
        return await NatsBus.connect(self.url, role.value, creds=creds, timeout=60, confirm=True)
