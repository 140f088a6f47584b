"""A hub whose every link has TLS, and whose bus wants a certificate of each client: the parts started one by one."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import httpx

import hanse
from certificates import Pair, ThrowawayCa
from forked_services import ForkedService, ForkedServices
from hanse.hub import Hub
from hanse_fabric import tls
from hanse_fabric.bus.authority import BusAuthority
from hanse_fabric.identity.secrets import make_api_key
from hanse_fabric.store.s3 import S3Store
from hanse_fabric.subjects import Role
from hanse_operations.bus.server import ServerTls
from hanse_operations.servers.nats import nats_program
from hanse_operations.servers.program import Program, free_ports
from hanse_operations.servers.seaweedfs import BUCKET, seaweedfs_program, store_keys
from servers import stand_ready

_SERVICES = {
    Role.MODEL_REGISTRY: "hanse_model_registry",
    Role.AGGREGATOR: "hanse_aggregator",
    Role.COORDINATOR: "hanse_coordinator",
    Role.COMPENSATOR: "hanse_compensator",
}


class TlsHub:
    """A hub in `folder` with certificates of `ca`. Its bus lets in only clients with one of them. Its services are
    forked by `services`."""

    def __init__(self, folder: Path, services: ForkedServices) -> None:
        self.folder = folder
        self._services = services
        self.ca = ThrowawayCa(folder)
        self.server, self.client_pair = self.ca.issue("server"), self.ca.issue("client")
        self.authority = BusAuthority(folder / "authority")
        self.api_key = make_api_key().text
        self.bus_port, self.http_port, *self._health = free_ports(6)
        self._store_port, self._store_tls_port = free_ports(2, shifted=10_000)
        self._processes: list[subprocess.Popen[bytes] | ForkedService] = []
        self._servers: list[Program] = []

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.http_port}"

    @property
    def bus_url(self) -> str:
        return f"tls://127.0.0.1:{self.bus_port}"

    @property
    def store_url(self) -> str:
        return f"https://127.0.0.1:{self._store_tls_port}"

    def connect(self) -> Hub:
        """The operator's connection."""
        return hanse.connect(self.url, api_key=self.api_key, ca=self.ca.cert)

    def store(self, ca: Path) -> S3Store:
        pair = store_keys(self.folder / "store")["admin"]
        return S3Store(self.store_url, pair.access_key, pair.secret_key, BUCKET, ca=ca, patience=2.0)

    def context(self) -> ssl.SSLContext:
        return tls.client_context(self.ca.cert, self.client_pair.cert, self.client_pair.key)

    def start(self) -> None:
        mutual = ServerTls(self.server.cert, self.server.key, self.ca.cert)
        self._start_server(nats_program(self.folder / "nats", self.authority, port=self.bus_port, tls=mutual))
        (self.folder / "store").mkdir()
        self._start_server(
            seaweedfs_program(
                self.folder / "store", port=self._store_port, https_port=self._store_tls_port,
                cert=self.server.cert, key=self.server.key,
            )
        )  # fmt: skip
        asyncio.run(stand_ready(self.bus_url, self.authority, self.context()))
        store = self.store(self.ca.cert)
        store.make_bucket()
        store.close()
        (self.folder / "operator.key").write_text(self.api_key)
        for (role, module), health in zip(_SERVICES.items(), self._health, strict=True):
            self.start_service(module, self.environment(role, health))
        for health in self._health:
            self._wait(lambda port=health: self._is_ready(port))

    def environment(self, role: Role, health: int) -> dict[str, str]:
        """A service's settings: what an operator would set for TLS everywhere."""
        pair = store_keys(self.folder / "store")[role.value]
        settings = {
            "BUS_URL": self.bus_url, "BUS_CREDS": self.authority.service_credentials(role), "BUS_CA": self.ca.cert,
            "BUS_CERT": self.client_pair.cert, "BUS_KEY": self.client_pair.key,
            "STORE_URL": self.store_url, "STORE_CA": self.ca.cert, "STORE_BUCKET": BUCKET,
            "STORE_ACCESS_KEY": pair.access_key, "STORE_SECRET_KEY": pair.secret_key,
            "TLS_CERT": self.server.cert, "TLS_KEY": self.server.key, "HEALTH_PORT": health,
        }  # fmt: skip
        if role is Role.MODEL_REGISTRY:
            settings["REGISTRY_KEY"] = self.folder / "registry.key"
        if role is Role.COMPENSATOR:
            settings["COMPENSATOR_KEY"] = self.folder / "compensator.key"
        if role is Role.COORDINATOR:
            settings |= {
                "HTTP_PORT": self.http_port, "BUS_AUTHORITY": self.authority.folder, "INSTANCE": "one",
                "BOOTSTRAP_KEY_FILE": self.folder / "operator.key",
            }  # fmt: skip
        return {f"HANSE_{name}": str(value) for name, value in settings.items()}

    def start_service(self, module: str, environment: dict[str, str]) -> ForkedService:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HANSE_")}
        service = self._services.start(module, clean | environment, self.folder / "log")
        self._processes.append(service)
        return service

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(60)
        for program in self._servers:
            program.tidy()

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def _start_server(self, program: Program) -> None:
        self._servers.append(program)
        with (self.folder / "log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(program.argv, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder)
            )
        self._wait(program.answers)

    def _is_ready(self, port: int) -> bool:
        try:
            return httpx.get(f"https://127.0.0.1:{port}/readyz", verify=self.context(), trust_env=False).is_success
        except httpx.TransportError:
            return False

    def _wait(self, ready: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not ready():
            assert all(process.poll() is None for process in self._processes), self.log()[-3000:]
            assert time.monotonic() < end, self.log()[-3000:]
            time.sleep(0.03)


def lay_certificate(home: Path, pair: Pair) -> Path:
    """Put a client certificate where a site's administrator puts it; returns the home."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "bus-cert.pem").write_bytes(pair.cert.read_bytes())
    (home / "bus-key.pem").write_bytes(pair.key.read_bytes())
    return home
