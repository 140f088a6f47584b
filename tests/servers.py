"""A real nats-server for tests: in operator mode, with all streams, killed and started again at the same address."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import time
from pathlib import Path

from hanse_fabric.bus.authority import BusAuthority
from hanse_fabric.bus.jwt import credentials
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.bus.provision import provision
from hanse_fabric.bus.server import ServerTls
from hanse_fabric.servers.nats import nats_program
from hanse_fabric.servers.program import free_ports
from hanse_fabric.subjects import Role


class NatsServer:
    """A server in `folder`. `start` returns when it answers; `kill` is SIGKILL, and `start` then finds the state."""

    def __init__(self, folder: Path, *, tls: ServerTls | None = None) -> None:
        self.folder = folder
        self.authority = BusAuthority(folder / "authority")
        self.port = free_ports(1)[0]
        self._tls = tls
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"{'tls' if self._tls else 'nats'}://127.0.0.1:{self.port}"

    def start(self) -> None:
        program = nats_program(self.folder, self.authority, port=self.port, tls=self._tls)
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
        path = self.authority.service_credentials(Role.PROVISIONER)
        await provision(self.url, path.read_text(), tls=tls)

    async def connect(self, role: Role, **options: object) -> NatsBus:
        """The connection of a service."""
        creds = self.authority.service_credentials(role)
        return await NatsBus.connect(self.url, role.value, creds=creds, **options)  # type: ignore[arg-type]

    async def enrol(self, project: str, participant: str) -> tuple[NatsBus, str]:
        """The connection of a participant, and its public key."""
        key = KeyPair.create(KeyKind.USER)
        token = self.authority.participant_jwt(project, participant, key.public)
        bus = await NatsBus.connect(self.url, f"{project}.{participant}", creds=credentials(token, key))
        return bus, key.public
