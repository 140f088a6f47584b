"""How a process reaches the bus and the object store that its settings name. The clients are loaded only when named."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from hanse_fabric import tls
from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.settings import ServiceSettings
from hanse_fabric.store.port import ObjectStore

_LOG = logging.getLogger(__name__)

R = TypeVar("R")


async def patiently(what: str, connect: Callable[[], Awaitable[R]], patience: float, clock: Clock = SYSTEM_CLOCK) -> R:
    """Try for `patience` seconds while the other side is merely absent; any other refusal is final."""
    end = clock.monotonic() + patience
    told = False
    while True:
        try:
            return await connect()
        except HanseError as error:
            if error.code not in (ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT) or clock.monotonic() > end:
                raise
            if not told:
                _LOG.info(f"waiting for the {what}", extra={"reason": error.message})
                told = True
        await clock.sleep(0.2)


def bus_tls(settings: ServiceSettings) -> ssl.SSLContext | None:
    """TLS for the bus as the settings have it; None: as its address says, by the system's CAs."""
    if settings.bus_ca is None and settings.bus_cert is None:
        return None
    return tls.client_context(settings.bus_ca, settings.bus_cert, settings.bus_key)


async def connect_bus(settings: ServiceSettings, name: str) -> Bus:
    """Connect as the service `name` (a role of `subjects.Role`).

    Raises:
        HanseError: UNAVAILABLE when the bus does not answer, FORBIDDEN or UNAUTHENTICATED when it refuses.
    """
    from hanse_fabric.bus.nats import NatsBus

    return await NatsBus.connect(
        settings.bus_url, name, creds=settings.bus_creds, inbox_prefix=f"_INBOX.{name}", tls=bus_tls(settings),
        heartbeat=settings.bus_heartbeat, confirm=True,
    )  # fmt: skip


def open_store(settings: ServiceSettings) -> ObjectStore:
    """The store that the settings name. Blocks while its abilities are probed.

    Raises:
        HanseError: INVALID_INPUT for another kind of address; UNAVAILABLE or FORBIDDEN from the store.
    """
    address = urlsplit(settings.store_url)
    if address.scheme == "file":
        from hanse_fabric.store.directory import DirectoryStore

        return DirectoryStore(Path(unquote(address.path)))
    if address.scheme not in ("http", "https"):
        raise invalid("HANSE_STORE_URL", settings.store_url, "an http://, https:// or file:// address")
    from hanse_fabric.store.s3 import S3Store

    return S3Store(
        settings.store_url,
        settings.store_access_key,
        settings.store_secret_key.get_secret_value(),
        settings.store_bucket,
        ca=settings.store_ca,
        region=settings.store_region,
        public_url=settings.store_public_url,
    )
