"""Every route of the API, in one list."""

from __future__ import annotations

from hanse_coordinator.api import (
    audit,
    events,
    invitations,
    joining,
    keys,
    leaves,
    models,
    outputs,
    participants,
    projects,
    proof,
    runs,
    status,
    unreadable,
)
from hanse_coordinator.api.route import Route

_RESOURCES = (
    status, proof, joining, projects, invitations, participants, runs, outputs, events, models, audit, keys,
    leaves, unreadable,
)  # fmt: skip
ROUTES: tuple[Route, ...] = tuple(route for resource in _RESOURCES for route in resource.ROUTES)
