"""`python -m hanse_operations backup` and `restore`: the bus's streams to and from an object store or a folder."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from hanse_fabric.bus.nats import read_creds
from hanse_fabric.clock import SystemClock
from hanse_fabric.connections import bus_tls, open_store
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.folders import no_address
from hanse_fabric.settings import ServiceSettings
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.store.port import ObjectStore
from hanse_fabric.subjects import Role
from hanse_operations.backup import backups
from hanse_operations.backup.snapshots import Link, connected
from hanse_operations.state.command import add_bus_to, bus_settings

_STORE = "s3"


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The commands' options."""
    where = "`s3`: the object store of HANSE_STORE_*, below backups/; or a folder"
    parser = commands.add_parser("backup", help="save the bus's streams")
    parser.add_argument("--to", default=_STORE, help=where)
    parser.add_argument("--keep", type=int, default=7, help="how many backups are kept; older ones are removed")
    add_bus_to(parser)
    parser.set_defaults(run=_backup)
    parser = commands.add_parser("restore", help="bring a backup's streams back; the services must be stopped")
    parser.add_argument("--from", dest="origin", default=_STORE, help=where)
    parser.add_argument("--backup", default="", metavar="NAME", help="which; by default the newest")
    parser.add_argument("--list", action="store_true", help="only list what is there")
    parser.add_argument("--replicas", type=int, choices=(1, 3, 5), help="copies of each stream; by default as before")
    parser.add_argument("--force", action="store_true", help="replace streams that hold messages, for good")
    add_bus_to(parser)
    parser.set_defaults(run=_restore)


def _backup(arguments: argparse.Namespace) -> None:
    if arguments.keep < 1:
        raise HanseError(ErrorCode.INVALID_INPUT, f"--keep: {arguments.keep} is given, 1 or more is expected")
    settings = bus_settings(arguments)
    store = _store(arguments.to, settings)
    try:
        made = asyncio.run(_make(_opener(settings, Role.BACKUP), store))
        size = sum(stream.size for stream in made.streams)
        print(f"backup {made.name}: {len(made.streams)} streams, {made.messages} messages, {size} bytes")
        if made.moved:
            print("runs went on while it was made: the last step of one may have to fail after a restore")
        for name in backups.thin_out(store, arguments.keep):
            print(f"backup {name}: removed, {arguments.keep} are kept")
    finally:
        store.close()


async def _make(connect: Callable[[], AbstractAsyncContextManager[Link]], store: ObjectStore) -> backups.Manifest:
    async with connect() as link:
        return await backups.make(link, store, SystemClock().now())


def _restore(arguments: argparse.Namespace) -> None:
    settings = bus_settings(arguments)
    store = _store(arguments.origin, settings)
    try:
        if arguments.list:
            for name in backups.listed(store):
                print(name)
            return
        manifest = backups.read_manifest(store, arguments.backup)
        connect = _opener(settings, Role.RESTORER)
        asyncio.run(backups.restore(connect, store, manifest, force=arguments.force, replicas=arguments.replicas))
    finally:
        store.close()
    print(
        f"backup {manifest.name} of {manifest.at:%Y-%m-%d %H:%M:%S} UTC, made by release {manifest.release}, is back:"
    )
    print(f"{len(manifest.streams)} streams, {manifest.messages} messages")
    print("next: the state job (`python -m hanse_operations state`), then the services, then the sites")


def _opener(settings: ServiceSettings, role: Role) -> Callable[[], AbstractAsyncContextManager[Link]]:
    if not settings.bus_url or settings.bus_creds is None:
        raise HanseError(ErrorCode.INVALID_INPUT, "HANSE_BUS_URL, HANSE_BUS_CREDS: both must be set (--url, --creds)")
    tls, credentials = bus_tls(settings), read_creds(settings.bus_creds)
    return lambda: connected(settings.bus_url, credentials, role, tls=tls)


def _store(where: str, settings: ServiceSettings) -> ObjectStore:
    if where != _STORE:
        return DirectoryStore(Path(no_address(where, "--to, --from (HANSE_STORE_URL is for the store's address)")))
    if not settings.store_url:
        raise HanseError(ErrorCode.INVALID_INPUT, "HANSE_STORE_URL: it must be set where a backup is in the store")
    return open_store(settings)
