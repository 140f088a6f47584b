"""The embedded hub: nats-server, SeaweedFS and all services as supervised processes."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_urlsafe
from types import TracebackType
from typing import ClassVar, Self

from hanse.embedded.nursery import SERVICES, Nursery, NurseryKind
from hanse.embedded.processes import Child, ChildSpec, Supervisor
from hanse.embedded.public import Public
from hanse.embedded.readiness import PORT_FILE, Readiness
from hanse.embedded.state import PORT_OPTIONS, StateFolder
from hanse_fabric.bus.authority import BusAuthority
from hanse_fabric.durable import write_durably
from hanse_fabric.folders import no_address
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.identity.sealing import SealingKey
from hanse_fabric.identity.secrets import make_api_key
from hanse_fabric.settings import ServiceSettings
from hanse_fabric.subjects import Role
from hanse_operations.bus.server import ClusterNode, LeafListener, ServerTls, WebSocketListener
from hanse_operations.servers.nats import nats_program
from hanse_operations.servers.program import Program, check_free
from hanse_operations.servers.seaweedfs import BUCKET, seaweedfs_program, store_keys
from hanse_operations.servers.shown import Shown, own_certificate
from hanse_operations.state.command import prepare

_READY_WITHIN = 60.0
_HOST = "127.0.0.1"
_SERVER_GRACE = 30.0
PUBLIC_PORTS = ("public bus", "public store", "store over TLS")


class EmbeddedHub:
    """A hub on this machine while the context lasts.

    Args:
        folder: its state; a later start in the same folder finds everything again.
        http_port: the API's port; None for the one chosen at the first start.
        ports: further ports that are chosen, by their use: `console`, and of `PUBLIC_PORTS`.
        aggregators, coordinators, compensators, registries: replicas.
        sharing: how many compensators share masks: each with a key and a memory of its own.
        bus_servers: members of the bus's cluster, each with a copy of all streams: 1, 3 or 5.
        leaves: whether leaf nodes may connect (`leaf_urls`); the bus's servers then show how they are, too.
        leaf_tls: the certificate that leaf nodes are shown; None: no TLS.
        regions: of sites, beside the hub's own.
        settings: environment that every service gets beside what is its own.
        public: how other machines reach the hub, over TLS alone; None: it is on loopback, without TLS.
        console: whether the web console is started, too.

    Attributes:
        compensator_key: the compensator's public key (base64), which sites pin in their policies.
        sharing_keys: the lasting public keys (base64) of compensators that share masks, by name.
        bus_url: the bus's servers, separated by commas.
        ca: the authority that signed the hub's certificate; None: there is no certificate, or systems know it.
        public_ports: that other machines need, by their use.
        addresses: that other machines are told, by their use.
        direct_url: of the HTTP API at this machine's own port: `url` may be a front's.
        console_url: of the web console; empty: there is none.
        leaf_urls, monitoring: of the bus's servers, for leaf nodes and for who watches, where `leaves` is set.

    Raises:
        HanseError: LOCKED when another hub runs on the folder; CONFLICT when a port is taken; INVALID_INPUT when the
            folder is none that can be written to; UNAVAILABLE with the end of a log when a process does
            not become ready.
    """

    services_from: ClassVar[NurseryKind | None] = SERVICES
    """Where services are forked, so that they share what they load; None: each is started as a program of its own."""

    def __init__(
        self,
        folder: Path,
        *,
        http_port: int | None = None,
        ports: Mapping[str, int] | None = None,
        aggregators: int = 1,
        coordinators: int = 1,
        compensators: int = 1,
        sharing: int = 0,
        registries: int = 1,
        bus_servers: int = 1,
        leaves: bool = False,
        leaf_tls: ServerTls | None = None,
        regions: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
        end_former_tokens: bool = False,
        public: Public | None = None,
        console: bool = False,
    ) -> None:
        self.state = StateFolder(no_address(folder, "state folder").absolute())
        self._http_port, self._chosen_ports = http_port, dict(ports or {})
        self._aggregators = aggregators
        self._coordinators = coordinators
        self._compensators = compensators
        self._sharing = [f"sharing-{index + 1}" for index in range(sharing)]
        self._registries = registries
        self._settings = dict(settings or {})
        self._end_former_tokens = end_former_tokens
        self._leaves, self._leaf_tls, self._regions = leaves, leaf_tls, regions
        self._console, self._proxy_secret = console, token_urlsafe(32)
        self._public, self._shown = public, None if public is None else _given(public)
        self._bus_servers = ["", *(f"-{index}" for index in range(2, bus_servers + 1))]
        self._exit = contextlib.AsyncExitStack()
        self.supervisor: Supervisor
        self.url = self.direct_url = ""
        self.api_key = ""
        self.compensator_key = ""
        self.sharing_keys: dict[str, str] = {}
        self.bus_url = ""
        self.leaf_urls: list[str] = []
        self.monitoring: list[str] = []
        self.ca: Path | None = None
        self.public_ports: dict[str, int] = {}
        self.addresses: dict[str, str] = {}
        self.console_url = ""

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._exit.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exit.aclose()

    async def _start(self) -> None:
        self._exit.enter_context(self.state.locked())
        self.supervisor = Supervisor(self.state.root)
        further = [f"bus{server}" for server in self._bus_servers[1:]]
        if further:
            further += [f"cluster{server}" for server in self._bus_servers]
        if self._leaves:
            further += [f"{name}{server}" for name in ("leaf", "monitoring") for server in self._bus_servers]
        if self._console:
            further.append("console")
        if self._public is not None:
            further += PUBLIC_PORTS
        ports = self.state.ports(self._http_port, further, self._chosen_ports)
        await asyncio.to_thread(self._check_free, ports)
        nursery = None
        if self.services_from is not None:  # it loads while the servers start, and ends after its children
            nursery = Nursery(self.services_from, self.state.root / "logs" / "nursery.log")
            await self._exit.enter_async_context(nursery)
        self._exit.push_async_callback(self.supervisor.stop)
        self.bus_url = self._bus_url(ports)
        if self._leaves:
            self.leaf_urls = [f"nats-leaf://{_HOST}:{ports[f'leaf{server}']}" for server in self._bus_servers]
            self.monitoring = [f"http://{_HOST}:{ports[f'monitoring{server}']}" for server in self._bus_servers]
        authority = BusAuthority(self.state.authority)
        for region in self._regions:
            authority.add_region(region)
        since = authority.renew_services() if self._end_former_tokens else None
        self.api_key = self.state.api_key() or make_api_key().text
        write_durably(self.state.key_file, self.api_key + "\n")
        self.url = self.direct_url = f"http://{_HOST}:{ports['http']}"
        if self._public is not None:
            hosts = list(dict.fromkeys((*self._public.hosts(), _HOST, "localhost")))
            if self._public.cert is None:
                self._shown = own_certificate(self.state.root / "tls", hosts, datetime.now(UTC))
            uses = ("http", "public bus", "public store", *(["console"] if self._console else []))
            self.public_ports = {use: ports[use] for use in uses}
            self.addresses = {use: self._public.told_address(use, ports[use]) for use in uses}
            self.url, self.direct_url = self.addresses["http"], self._public.address("https", ports["http"])
        self.ca = None if self._shown is None else self._shown.ca
        if self._console:
            self.console_url = self.addresses.get("console") or f"http://{_HOST}:{ports['console']}"
        self.state.remember_address(self.url, self.ca)
        sealing = await asyncio.to_thread(SealingKey.load_or_create, self.state.compensator_key)
        self.compensator_key = base64.b64encode(sealing.public_bytes).decode()

        for name in self._sharing:
            owner = await asyncio.to_thread(SigningKey.load_or_create, self.state.identity(name))
            self.sharing_keys[name] = base64.b64encode(owner.public_bytes).decode()

        bus = [self._bus_server(server, ports, authority) for server in self._bus_servers]
        store = self._server(self._store_program(ports))
        if self._public is not None:
            to = (self._public.bind, str(ports["public store"]), str(ports["store over TLS"]))
            forward = (sys.executable, "-m", "hanse.embedded.forward", *to)
            self.supervisor.start(ChildSpec("store-forward", forward))
        await asyncio.gather(*(server.wait_ready(_READY_WITHIN) for server in bus))
        own = ServiceSettings(
            bus_url=self._bus_url(ports), bus_creds=authority.service_credentials(Role.PROVISIONER), bus_ca=None,
            bus_cert=None, bus_key=None,
        )  # fmt: skip
        await prepare(own, replicas=len(bus), patience=_READY_WITHIN)
        if since is not None:
            await authority.end_tokens_of_before(since, url=self.bus_url, timeout=_READY_WITHIN)
        # The services' start overlaps with the object store's; they wait for it themselves.
        services = [self.supervisor.start(spec, nursery) for spec in self._services(ports, authority)]
        await store.wait_ready(_READY_WITHIN)
        await asyncio.to_thread(self._make_bucket, ports)
        await asyncio.gather(*(service.wait_ready(_READY_WITHIN) for service in services))

    def _bus_server(self, server: str, ports: dict[str, int], authority: BusAuthority) -> Child:
        cluster = None
        if len(self._bus_servers) > 1:
            routes = [f"nats-route://{_HOST}:{ports[f'cluster{other}']}" for other in self._bus_servers]
            cluster = ClusterNode(f"nats-server{server}", ports[f"cluster{server}"], routes)
        leaf = LeafListener(ports[f"leaf{server}"], self._leaf_tls) if self._leaves else None
        web = None
        if self._public is not None and self._shown is not None and not server:
            web = WebSocketListener(self._public.bind, ports["public bus"], self._shown.tls)
        program = nats_program(
            self.state.root / f"nats{server}", authority, port=ports[f"bus{server}"], cluster=cluster, leaf=leaf,
            monitoring_port=ports.get(f"monitoring{server}"), websocket=web,
        )  # fmt: skip
        return self._server(replace(program, name=f"nats-server{server}"))

    def _store_program(self, ports: dict[str, int]) -> Program:
        folder, port = self.state.root / "store", ports["store"]
        if self._shown is None:
            return seaweedfs_program(folder, port=port)
        tls = ports["store over TLS"]
        return seaweedfs_program(folder, port=port, https_port=tls, cert=self._shown.cert, key=self._shown.key)

    def _check_free(self, ports: dict[str, int]) -> None:
        """Check this machine's own ports, and those that other machines reach where they reach them."""
        shown = {"http", "public bus", "public store", "console"} & set(ports) if self._public is not None else set()
        own = {name: port for name, port in ports.items() if name not in shown}
        check_free(own, options=PORT_OPTIONS)
        if self._public is not None:
            check_free({name: ports[name] for name in shown}, host=self._public.bind, options=PORT_OPTIONS)

    def _told(self) -> dict[str, str]:
        """Settings of the coordinator that say how other machines reach the hub."""
        if self._public is None or self._shown is None:
            return {"HANSE_HTTP_HOST": _HOST}
        ca = str(self._shown.ca) if self._shown.ca is not None else ""
        return {
            "HANSE_HTTP_HOST": self._public.bind, "HANSE_HTTP_CA": ca,
            "HANSE_TLS_CERT": str(self._shown.cert), "HANSE_TLS_KEY": str(self._shown.key),
            "HANSE_BUS_PUBLIC_URL": self.addresses["public bus"],
            "HANSE_BUS_PUBLIC_CA": ca or "system", "HANSE_STORE_PUBLIC_CA": ca or "system",
        }  # fmt: skip

    def _of_console(self) -> dict[str, str]:
        """Settings of the coordinator: where the console is, and by what it is known: its address is no sign."""
        if not self._console:
            return {}
        return {"HANSE_CONSOLE_URL": self.console_url, "HANSE_PROXY_SECRET": self._proxy_secret}

    def _console_settings(self, ports: dict[str, int]) -> dict[str, str]:
        """The console asks the coordinator on loopback, and so says for whom; one with a certificate that was given
        knows itself by its public name alone."""
        given = self._public is not None and self._public.cert is not None
        scheme = "http" if self._public is None else "https"
        own = {
            "HANSE_CONSOLE_HUB": self.direct_url if given else f"{scheme}://{_HOST}:{ports['http']}",
            "HANSE_CONSOLE_HUB_PUBLIC": self.url,
            "HANSE_CONSOLE_HOST": _HOST if self._public is None else self._public.bind,
            "HANSE_CONSOLE_PORT": str(ports["console"]),
            "HANSE_PROXY_SECRET": self._proxy_secret,
        }
        if self._shown is not None:
            own |= {"HANSE_TLS_CERT": str(self._shown.cert), "HANSE_TLS_KEY": str(self._shown.key)}
        if self.ca is not None:
            own["HANSE_CONSOLE_HUB_CA"] = str(self.ca)
        return own

    def _server(self, program: Program) -> Child:
        async def ready() -> bool:
            return await asyncio.to_thread(program.answers)

        return self.supervisor.start(
            ChildSpec(program.name, program.argv, ready=ready, grace=_SERVER_GRACE, tidy=program.tidy)
        )

    def _bus_url(self, ports: dict[str, int]) -> str:
        return ",".join(f"nats://{_HOST}:{ports[f'bus{server}']}" for server in self._bus_servers)

    def _make_bucket(self, ports: dict[str, int]) -> None:
        from minio import Minio

        key = store_keys(self.state.root / "store")["admin"]
        client = Minio(f"{_HOST}:{ports['store']}", key.access_key, key.secret_key, secure=False)
        if not client.bucket_exists(BUCKET):
            client.make_bucket(BUCKET)

    def _services(self, ports: dict[str, int], authority: BusAuthority) -> Iterator[ChildSpec]:
        registry = {"HANSE_REGISTRY_KEY": str(self.state.root / "registry.key")}
        for index in range(self._registries):
            name = "model-registry" if index == 0 else f"model-registry-{index + 1}"
            yield self._service(name, "hanse_model_registry", ports, Role.MODEL_REGISTRY, authority, registry)
        for index in range(self._coordinators):
            name = "coordinator" if index == 0 else f"coordinator-{index + 1}"
            own = {
                **self._told(),
                "HANSE_HTTP_PORT": str(ports["http"] if index == 0 else 0),
                "HANSE_BOOTSTRAP_KEY_FILE": str(self.state.key_file),
                "HANSE_BUS_AUTHORITY": str(self.state.authority),
                "HANSE_INSTANCE": name,
                **self._of_console(),
            }
            yield self._service(name, "hanse_coordinator", ports, Role.COORDINATOR, authority, own)
        for index in range(self._aggregators):
            name = "aggregator" if index == 0 else f"aggregator-{index + 1}"
            yield self._service(name, "hanse_aggregator", ports, Role.AGGREGATOR, authority, {})
        sealing = {"HANSE_COMPENSATOR_KEY": str(self.state.compensator_key)}
        for index in range(self._compensators):
            name = "compensator" if index == 0 else f"compensator-{index + 1}"
            yield self._service(name, "hanse_compensator", ports, Role.COMPENSATOR, authority, sealing)
        if self._console:
            yield self._console_spec(ports)
        for name in self._sharing:
            own = {"HANSE_COMPENSATOR_IDENTITY": str(self.state.identity(name)), "HANSE_COMPENSATOR_NAME": name}
            yield self._service(name, "hanse_compensator", ports, Role.COMPENSATOR, authority, own)

    def _service(
        self, name: str, module: str, ports: dict[str, int], role: Role, authority: BusAuthority, own: dict[str, str]
    ) -> ChildSpec:
        key = store_keys(self.state.root / "store")[role.value]
        port_file = self.state.root / f"{name}{PORT_FILE}"
        environment = {
            "HANSE_BUS_URL": self._bus_url(ports),
            "HANSE_BUS_CREDS": str(authority.service_credentials(role)),
            "HANSE_STORE_URL": f"http://{_HOST}:{ports['store']}",
            "HANSE_STORE_ACCESS_KEY": key.access_key,
            "HANSE_STORE_SECRET_KEY": key.secret_key,
            "HANSE_STORE_BUCKET": BUCKET,
            "HANSE_HEALTH_HOST": _HOST,
            "HANSE_HEALTH_PORT": str(_health_port(port_file)),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            "OPENBLAS_NUM_THREADS": "1",
            **self._settings,
            **own,
        }
        if self._public is not None:
            environment["HANSE_STORE_PUBLIC_URL"] = self.addresses["public store"]
        return self._spec(name, module, environment)

    def _console_spec(self, ports: dict[str, int]) -> ChildSpec:
        """It gets no key, neither of the bus nor of the store."""
        health = _health_port(self.state.root / f"console{PORT_FILE}")
        environment = {"HANSE_HEALTH_HOST": _HOST, "HANSE_HEALTH_PORT": str(health), **self._console_settings(ports)}
        return self._spec("console", "hanse_console", environment)

    def _spec(self, name: str, module: str, environment: dict[str, str]) -> ChildSpec:
        ready = Readiness(int(environment["HANSE_HEALTH_PORT"]), tls="HANSE_TLS_CERT" in environment)
        return ChildSpec(name, (sys.executable, "-m", module), environment, ready.ask)


def _given(public: Public) -> Shown | None:
    """The certificate that was given for the hub; None: it is to make one."""
    if public.cert is None or public.key is None:
        return None
    return Shown(public.cert.absolute(), public.key.absolute(), public.ca and public.ca.absolute())


def _health_port(file: Path) -> int:
    """A service's health port: chosen free once, then kept in a file beside the state."""
    from hanse_operations.servers.program import free_ports

    if file.exists():
        return int(json.loads(file.read_text()))
    port = free_ports(1)[0]
    write_durably(file, json.dumps(port))
    return port
