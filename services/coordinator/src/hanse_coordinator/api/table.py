"""Every route of the API, in one list."""

from __future__ import annotations

from hanse_coordinator.api import (
    audit,
    events,
    invitations,
    joining,
    keys,
    models,
    outputs,
    participants,
    projects,
    runs,
    status,
)
from hanse_coordinator.api.route import Route

ROUTES: tuple[Route, ...] = (
    *status.ROUTES,
    *joining.ROUTES,
    *projects.ROUTES,
    *invitations.ROUTES,
    *participants.ROUTES,
    *runs.ROUTES,
    *outputs.ROUTES,
    *events.ROUTES,
    *models.ROUTES,
    *audit.ROUTES,
    *keys.ROUTES,
)
