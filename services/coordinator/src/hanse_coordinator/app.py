"""The coordinator, put together: records, keys, presence, workflows, links and the HTTP API."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path

from hanse_coordinator.api.door import LIMITS
from hanse_coordinator.api.hub import Hub, HubInfo
from hanse_coordinator.api.provider import CALLBACK
from hanse_coordinator.api.server import application
from hanse_coordinator.api.table import ROUTES
from hanse_coordinator.auth import register_bootstrap
from hanse_coordinator.authority import BusCredentials, Credentials, NoCredentials
from hanse_coordinator.doors import SiteDoors
from hanse_coordinator.links import LinkServer
from hanse_coordinator.people.provider import ProviderTerms
from hanse_coordinator.people.sessions import SessionTerms
from hanse_coordinator.quotas import Quotas
from hanse_coordinator.records import Buckets
from hanse_coordinator.refusals import begin_counting
from hanse_coordinator.runs.settings import WorkflowSettings
from hanse_coordinator.runs.supervisor import Supervisor
from hanse_coordinator.settings import CoordinatorSettings, region_urls_of, roles_of
from hanse_fabric import tls
from hanse_fabric.bus.port import Bus
from hanse_fabric.connections import bus_tls
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.http_door import DoorRunner, listen
from hanse_fabric.networks import networks_of
from hanse_fabric.service import Service, served_by
from hanse_fabric.text_files import read_text

_LOG = logging.getLogger(__name__)
_SHUTDOWN_S = 2.0


async def serve(service: Service[CoordinatorSettings]) -> None:
    """Run the coordinator until the service is told to stop."""
    settings, bus, store, clock = service.settings, service.bus, service.store, service.clock
    begin_counting()
    if settings.bootstrap_key_file is not None:
        await register_bootstrap(settings.bootstrap_key_file, Buckets.on(bus).keys, clock)
    hub = Hub.on(
        bus,
        store,
        clock,
        credentials=await asyncio.to_thread(_credentials, settings, bus),
        info=await asyncio.to_thread(_info, settings),
        quotas=_quotas(settings),
        stopping=service.stopping,
    )
    await check_regions(settings, hub.credentials)
    buckets = hub.buckets
    workflows = WorkflowSettings(
        instance=settings.instance, lease_ttl=settings.lease_ttl, journals=settings.quota_journals,
        tasks=settings.quota_tasks,
    )  # fmt: skip
    supervisor = Supervisor(bus=bus, store=store, buckets=buckets, clock=clock, settings=workflows)
    links = LinkServer(bus=bus, store=store, buckets=buckets, clock=clock, settings=workflows, quotas=hub.quotas)
    if isinstance(hub.credentials, BusCredentials):
        service.spawn(hub.credentials.keep_settled(), "revocations")
        service.spawn(hub.credentials.keep_few_connections(), "connections")
    for name, watch in hub.watches().items():
        service.spawn(watch, name)
    running = service.spawn(supervisor.run(), "supervisor")
    service.spawn(links.run(), "links")
    doors = SiteDoors(
        bus, links=links, credentials=hub.credentials, instance=settings.instance, results=settings.quota_results
    )  # fmt: skip
    service.spawn(doors.run(), "doors")
    async with AsyncExitStack() as stack:
        await hub.keys.ready.wait()
        port = await _listen(hub, settings, stack)
        _LOG.info("the API listens", extra={"address": f"{settings.http_host}:{port}"})
        service.set_ready()
        await service.stopping.wait()
    # Leases are given back while the bus is still there, so that another replica goes on at once.
    running.cancel()
    await asyncio.wait({running})


async def _listen(hub: Hub, settings: CoordinatorSettings, stack: AsyncExitStack) -> int:
    """Start the HTTP server; returns its port.

    Raises:
        HanseError: UNAVAILABLE when the address is taken.
    """
    runner = DoorRunner(
        application(hub, ROUTES), most=LIMITS.connections, first_s=LIMITS.header_s, tls=served_by(settings),
        shutdown_timeout=_SHUTDOWN_S,
    )  # fmt: skip
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    return await listen(runner, settings.http_host, settings.http_port, settings="HANSE_HTTP")


def _credentials(settings: CoordinatorSettings, bus: Bus) -> Credentials:
    if settings.bus_authority is None:
        return NoCredentials()
    from hanse_fabric.bus.authority import BusAuthority

    return BusCredentials(BusAuthority(settings.bus_authority), bus, settings.bus_url, bus_tls(settings))


async def check_regions(settings: CoordinatorSettings, credentials: Credentials) -> None:
    """INVALID_INPUT for an address of a region that has no keys here: none of its sites could join."""
    regions = await credentials.regions()
    for region in region_urls_of(settings.bus_region_urls):
        if region not in regions:
            raise invalid(
                "HANSE_BUS_REGION_URLS", region, f"one of {', '.join(regions)}",
                hint="HANSE_BUS_AUTHORITY needs the region's keys: region-NAME.pub and region-NAME-signer.seed",
            )  # fmt: skip


def _quotas(settings: CoordinatorSettings) -> Quotas:
    return Quotas(
        storage=settings.quota_storage,
        runs=settings.quota_runs,
        sites=settings.quota_sites,
        bytes_a_day=settings.quota_bytes_a_day,
        records=settings.quota_records,
        journals=settings.quota_journals,
        changes_a_day=settings.quota_changes_a_day,
    )


def _info(settings: CoordinatorSettings) -> HubInfo:
    return HubInfo(
        name=settings.hub_name,
        instance=settings.instance,
        bus_url=settings.bus_public_url or settings.bus_url,
        bus_ca=_shown_ca(settings.bus_public_ca, settings.bus_ca),
        http_ca=_pem(settings.http_ca),
        store_ca=_shown_ca(settings.store_public_ca, settings.store_ca),
        invitation_ttl=settings.invitation_ttl,
        proxies=networks_of(settings.trusted_proxies),
        proxy_secret=settings.proxy_secret.get_secret_value(),
        region_urls=region_urls_of(settings.bus_region_urls),
        sessions=SessionTerms(settings.session_idle, settings.session_lifetime),
        console_url=settings.console_url.rstrip("/"),
        local_people=settings.local_people,
        provider=_provider(settings),
    )


def _provider(settings: CoordinatorSettings) -> ProviderTerms | None:
    if not settings.oidc_issuer:
        return None
    secret = None
    if settings.oidc_client_secret_file is not None:
        secret = read_text(settings.oidc_client_secret_file, "HANSE_OIDC_CLIENT_SECRET_FILE").strip()
    return ProviderTerms(
        issuer=settings.oidc_issuer,
        client=settings.oidc_client,
        redirect=settings.console_url.rstrip("/") + CALLBACK,
        secret=secret,
        label=settings.oidc_label,
        scopes=settings.oidc_scopes,
        groups=settings.oidc_groups,
        roles=roles_of(settings.oidc_roles),
        ca=tls.client_context(settings.oidc_ca) if settings.oidc_ca is not None else None,
    )


def _shown_ca(public: str, own: Path | None) -> str | None:
    """The CA that sites are told to trust: None for those that their systems know."""
    return None if public == "system" else _pem(Path(public) if public else own)


def _pem(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        return file.read_text()
    except OSError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"CA file {file}: {error.strerror}") from None
