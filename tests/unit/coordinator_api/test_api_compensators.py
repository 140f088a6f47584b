"""The hub tells which compensators announced themselves, with which keys."""

import asyncio
import base64
from typing import Any

from hanse_fabric.messages import CompensatorRecord
from hanse_fabric.records import Bucket
from hanse_fabric.state import STATE_VERSION
from hanse_fabric.subjects import COMPENSATORS


async def test_the_hub_shows_the_announced_key_until_the_compensator_is_gone(api: Any) -> None:
    bucket = Bucket(api.hub.bus, COMPENSATORS, CompensatorRecord)
    key = base64.b64encode(bytes(range(32)))
    record = CompensatorRecord(public_key=key, version="0.1.0", at=api.clock.now())

    async def told(expected: dict[str, str]) -> None:
        async with asyncio.timeout(60):
            while (await api.ok("GET", "/v1/hub"))["compensators"] != expected:  # noqa: ASYNC110 - the hub follows the bus
                await asyncio.sleep(0.01)

    await told({})
    assert (await api.ok("GET", "/v1/hub"))["state_version"] == STATE_VERSION
    await bucket.create(record, name="compensator")
    await told({"compensator": key.decode()})
    await bucket.delete(name="compensator")
    await told({})
