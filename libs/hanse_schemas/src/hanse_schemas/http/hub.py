"""What the hub tells about itself: to everybody, and to its operator."""

from __future__ import annotations

from datetime import datetime

from hanse_fabric.messages.base import Frozen


class HubView(Frozen):
    """The hub. `time` is its clock, for comparing; `bus_url` is where sites connect.

    `compensators` are public keys (base64) by name, as they were announced: a site pins the one that it was told by
    whoever runs the compensator, and compares. `state_version` is the form of the stored state. `ca` is the authority
    (PEM) that signed this API's certificate, where it is a private one: worth nothing by itself, for whoever answers
    could tell another, but who was given its fingerprint (`hanse_fabric.tls.fingerprint`) knows it by that.
    """

    name: str
    version: str
    time: datetime
    bus_url: str
    features: tuple[str, ...]
    compensators: dict[str, str]
    state_version: int
    ca: str | None = None


class StatusView(Frozen):
    """The hub as its operator sees it. `instance` is the replica that answered."""

    name: str
    version: str
    instance: str
    time: datetime
    started_at: datetime
    bus_ready: bool
    store_ready: bool
    projects: int
    participants: int
    participants_online: int
    runs: dict[str, int]
    resident_bytes: int
