"""Leaf nodes of regions: the end of a key, by the operator."""

from __future__ import annotations

from hanse_coordinator.api.hub import HUB_AUDIT, Hub
from hanse_coordinator.api.route import OPERATE, Request, Route
from hanse_fabric.bus.nkeys import KeyKind, decode_public
from hanse_fabric.errors import invalid
from hanse_schemas.http.leaves import LeafKeyRevoked


async def revoke_leaf_key(hub: Hub, request: Request) -> LeafKeyRevoked:
    """Written down, then pushed to the servers, which drop its connections. May be repeated."""
    region, key = str(request.path["region"]), str(request.path["leaf_key"])
    regions = await hub.credentials.regions()
    if region not in regions:
        raise invalid("region", region, f"one of {', '.join(regions)}")
    decode_public(key, KeyKind.USER)
    await hub.audit(request.caller, HUB_AUDIT, "leaf.revoke", f"leaf-key:{key}", region=region)
    connected = await hub.credentials.revoke_leaf(region, key)
    return LeafKeyRevoked(region=region, key=key, connected=tuple(connected))


ROUTES = (
    Route("DELETE", "/v1/regions/{region}/leaf-keys/{leaf_key}", OPERATE, revoke_leaf_key, LeafKeyRevoked,
          "Revoke a leaf node's key: it is cut off at once, and for good", unscoped=True),
)  # fmt: skip
