"""The way to a hub: its API, its clock, its release, its bus, the key, and the sites' clocks."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import hanse
from hanse.cli.checks.finding import Finding, finding
from hanse.cli.connection import Chosen
from hanse.hub import Hub
from hanse_fabric.errors import ErrorCode, HanseError

LARGEST_SKEW_S = 60.0
_NATS_PORT = 4222
_PORTS = {"wss": 443, "ws": 80}
_WAIT_S = 3.0
_ADVICE = {
    ErrorCode.UNAUTHENTICATED: "give a valid key: --api-key, or HANSE_API_KEY",
    ErrorCode.FORBIDDEN: "ask the hub's operator for a key with this right",
}


def check_hub(chosen: Chosen | None) -> Iterator[Finding]:
    """Check the way to a hub; it is no fault when none was named."""
    if chosen is None:
        yield Finding("hub", True, "none named", "give --url to check the way to one")
        return
    try:
        with chosen.connect(patience=1.0) as hub:
            yield from _connected(hub, hub.info(), with_key=chosen.api_key is not None)
    except HanseError as error:
        advice = f"see that the hub at {chosen.url} runs, and that the way out to it is open"
        if error.code is not ErrorCode.UNAVAILABLE or "certificate" in error.message:
            advice = error.hint or "check the address"
        yield Finding("hub", False, error.message, advice)


def _connected(hub: Hub, info: dict[str, Any], *, with_key: bool) -> Iterator[Finding]:
    release = str(info.get("version", ""))
    yield Finding("hub", True, f"{info.get('name', 'hub')} {release} at {hub.url}")
    alike = release.split(".")[:2] == hanse.__version__.split(".")[:2]
    yield finding(
        "release", alike, f"{hanse.__version__} here, {release or 'none'} there", "use the hub's release here"
    )
    if "state_version" in info:
        yield Finding("state", True, f"stored state of version {info['state_version']}")
    yield _clock(str(info.get("time", "")))
    for name, key in dict(info.get("compensators", {})).items():
        yield Finding("compensator", True, f"{name} announces {key}")
    for url in str(info.get("bus_url", "")).split(","):
        yield _reachable("bus", url.strip())
    if with_key:
        yield from _with_key(hub)


def _clock(told: str) -> Finding:
    try:
        ahead = (datetime.now(UTC) - datetime.fromisoformat(told)).total_seconds()
    except (ValueError, TypeError):
        return Finding("clock", False, f"the hub's time is {told!r}", "upgrade the hub")
    well = abs(ahead) < LARGEST_SKEW_S
    return finding("clock", well, f"{ahead:+.1f} s from the hub's", "set both clocks by NTP")


def _reachable(check: str, url: str) -> Finding:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme, _NATS_PORT)
    except ValueError:
        host, port = None, 0
    if not host:
        return Finding(check, False, f"{url!r} is no address", "set the hub's HANSE_BUS_PUBLIC_URL")
    try:
        with socket.create_connection((host, port), timeout=_WAIT_S):
            return Finding(check, True, url)
    except OSError as error:
        return Finding(check, False, f"{url}: {error}", f"open the way out to {host}, port {port}")


def _with_key(hub: Hub) -> Iterator[Finding]:
    try:
        projects = list(hub.projects)
        yield Finding("api key", True, f"{len(projects)} project{'' if len(projects) == 1 else 's'}")
        for project in projects:
            skewed = {
                site.participant: site.clock_difference
                for site in project.participants()
                if site.clock_difference is not None and abs(site.clock_difference) >= LARGEST_SKEW_S
            }
            shown = ", ".join(f"{name} {ahead:+.0f} s" for name, ahead in skewed.items()) or "as the hub's"
            advice = f"have NTP set at {', '.join(skewed)}"
            yield finding(f"clocks of {project.name}", not skewed, shown, advice)
    except HanseError as error:
        if error.code is ErrorCode.FORBIDDEN:
            return  # a site's key: it sees its project, and not the other sites
        yield Finding("api key", False, error.message, _ADVICE.get(error.code, error.hint))
