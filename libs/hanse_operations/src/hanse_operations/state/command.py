"""`python -m hanse_operations state`: streams, bucket and stored state as this release needs them."""

from __future__ import annotations

import argparse
import asyncio
from functools import partial
from pathlib import Path

from hanse_fabric.bus.nats import read_creds
from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import SystemClock
from hanse_fabric.connections import bus_tls, connect_bus, patiently
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.settings import ServiceSettings, load_settings
from hanse_fabric.state import STATE_STREAM, STATE_VERSION, read_state, refuse_newer
from hanse_fabric.subjects import SMALLEST_STORE, Role
from hanse_operations.bus.provision import provision
from hanse_operations.state.migrations import migrate

_PATIENCE_S = 300.0
_TRIES = 5


async def prepare(
    settings: ServiceSettings, *, replicas: int, storage: int = SMALLEST_STORE, patience: float = _PATIENCE_S
) -> int:
    """Make or update streams, and migrate the stored state; nothing is touched where a newer release wrote it.

    Args:
        settings: with the provisioner's credentials.
        replicas: copies of each stream in the cluster.
        storage: bytes that each server has for JetStream.
        patience: seconds to wait for the bus to appear.

    Returns:
        How many migrations were run.

    Raises:
        HanseError: UNKNOWN_SCHEMA for a downgrade; UNAVAILABLE when the bus is not there in time.
    """
    if not settings.bus_url or settings.bus_creds is None:
        raise HanseError(ErrorCode.INVALID_INPUT, "HANSE_BUS_URL, HANSE_BUS_CREDS: both must be set (--url, --creds)")
    tls, credentials = bus_tls(settings), await asyncio.to_thread(read_creds, settings.bus_creds)
    make = partial(provision, settings.bus_url, credentials, replicas=replicas, storage=storage, tls=tls)
    end = asyncio.get_running_loop().time() + patience

    def left() -> float:
        return max(1.0, end - asyncio.get_running_loop().time())

    bus = await patiently("bus", lambda: connect_bus(settings, Role.PROVISIONER.value), patience)
    try:
        # First only the bucket with the version: if the state is newer, nothing else may be touched.
        await make(timeout=left(), streams=(STATE_STREAM,))
        entry = await read_state(bus, timeout=left())
        if entry is not None:
            refuse_newer(entry.value.version, entry.value.release)
        await make(timeout=left())
        return await _migrated(bus)
    finally:
        await bus.close()


async def _migrated(bus: Bus) -> int:
    for attempt in range(_TRIES):
        try:
            return await migrate(bus, SystemClock())
        except HanseError as error:
            # Another job does the same at this moment: what it did is found.
            if error.code is not ErrorCode.CONFLICT or attempt == _TRIES - 1:
                raise
    return 0


def make_bucket(settings: ServiceSettings) -> None:
    """Make the bucket of a bundled store, with its administrator's keys; one that exists is fine."""
    if not settings.store_url.startswith(("http://", "https://")):
        raise HanseError(
            ErrorCode.INVALID_INPUT, "HANSE_STORE_URL: the address of an S3 endpoint is expected with --make-bucket"
        )
    from hanse_fabric.store.s3 import S3Store

    store = S3Store(
        settings.store_url, settings.store_access_key, settings.store_secret_key.get_secret_value(),
        settings.store_bucket, ca=settings.store_ca, region=settings.store_region, patience=_PATIENCE_S,
    )  # fmt: skip
    try:
        store.make_bucket()
    finally:
        store.close()


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command's options."""
    parser = commands.add_parser("state", help="make streams and bucket, migrate stored state, refuse a downgrade")
    parser.add_argument("--replicas", type=int, default=1, choices=(1, 3, 5), help="copies of each stream")
    parser.add_argument(
        "--storage", type=_bytes, default=SMALLEST_STORE, metavar="BYTES",
        help="what each server of the bus has for JetStream: every stream is reserved its share of it (8GB)",
    )  # fmt: skip
    parser.add_argument("--make-bucket", action="store_true", help="make the store's bucket (HANSE_STORE_*)")
    parser.add_argument("--patience", type=float, default=_PATIENCE_S, help="seconds to wait for the bus")
    add_bus_to(parser)
    parser.set_defaults(run=_run)


def _bytes(text: str) -> int:
    """As NATS writes amounts: `8GB`, or a plain number of bytes."""
    units = {"KB": 10, "MB": 20, "GB": 30, "TB": 40}
    unit = text[-2:].upper()
    return int(text[:-2]) << units[unit] if unit in units else int(text)


def add_bus_to(parser: argparse.ArgumentParser) -> None:
    """Options that stand for HANSE_BUS_*."""
    parser.add_argument("--url", help="address of the bus; HANSE_BUS_URL")
    parser.add_argument("--creds", type=Path, help="credentials file; HANSE_BUS_CREDS")
    parser.add_argument("--ca", type=Path, help="PEM file of the CA that signed the bus's certificate; HANSE_BUS_CA")


def bus_settings(arguments: argparse.Namespace) -> ServiceSettings:
    """The settings of the environment, with what the options say instead."""
    given = {"bus_url": arguments.url, "bus_creds": arguments.creds, "bus_ca": arguments.ca}
    return load_settings(ServiceSettings, **{name: value for name, value in given.items() if value is not None})


def _run(arguments: argparse.Namespace) -> None:
    settings = bus_settings(arguments)
    done = asyncio.run(
        prepare(settings, replicas=arguments.replicas, storage=arguments.storage, patience=arguments.patience)
    )
    print(f"streams: as this release needs them, {arguments.replicas} of each")
    print(f"stored state: version {STATE_VERSION}" + (f" after {done} migrations" if done else ""))
    if arguments.make_bucket:
        make_bucket(settings)
        print(f"bucket: {settings.store_bucket} is there")
