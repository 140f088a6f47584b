"""The compensators' public keys as they announce them, for showing: sites trust the key that their policy pins."""

from __future__ import annotations

import base64

from hanse_fabric.bus.port import Bus
from hanse_fabric.messages import CompensatorRecord
from hanse_fabric.records import Bucket
from hanse_fabric.subjects import COMPENSATORS


class CompensatorBoard:
    """The announced keys by the compensator's name, as `watch` keeps them."""

    def __init__(self, bus: Bus) -> None:
        self._bucket = Bucket(bus, COMPENSATORS, CompensatorRecord)
        self._keys: dict[str, str] = {}

    async def watch(self) -> None:
        """Follow until cancelled."""
        async with self._bucket.watch() as changes:
            async for change in changes:
                if change is None:
                    continue
                name = change.tokens["name"]
                if change.value is None:
                    self._keys.pop(name, None)
                else:
                    self._keys[name] = base64.b64encode(change.value.public_key).decode()

    def keys(self) -> dict[str, str]:
        """Public keys (base64) by name."""
        return dict(sorted(self._keys.items()))
