"""Leaf nodes of regions, as the operator sees them."""

from __future__ import annotations

from hanse_fabric.messages.base import Frozen
from hanse_fabric.names import Slug


class LeafKeyRevoked(Frozen):
    """A leaf node's key is void; `connected`: the leaf nodes of the region that are connected to the hub all the same,
    by the names that they give themselves. Where the one that was meant is among them, the key was not its."""

    region: Slug
    key: str
    connected: tuple[str, ...]
