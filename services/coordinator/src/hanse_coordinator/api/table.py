"""Every route of the API, in one list."""

from __future__ import annotations

from hanse_coordinator.api import (
    audit,
    curves,
    events,
    invitations,
    joining,
    keys,
    leaves,
    models,
    outputs,
    participants,
    people,
    projects,
    proof,
    provider,
    runs,
    sessions,
    status,
    studies,
    terms,
    unreadable,
)
from hanse_coordinator.api.route import Route

_RESOURCES = (
    status, proof, joining, terms, projects, invitations, participants, runs, curves, outputs, studies, events, models,
    audit, keys, people, sessions, provider, leaves, unreadable,
)  # fmt: skip
ROUTES: tuple[Route, ...] = tuple(route for resource in _RESOURCES for route in resource.ROUTES)
