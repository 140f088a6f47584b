"""Masked sums in the middle of a step on a real nats-server, each party with the rights of its role."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from hanse_aggregator.exchange import hold_session
from hanse_fabric.doors.asking import Doors
from hanse_fabric.exchange import open_exchange
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import ExchangeJob
from hanse_fabric.subjects import EXCHANGE, Role
from hanse_privacy.ring.plan import make_plan
from hanse_privacy.ring.sums import decode_sum, encode_sum, sum_ring
from hanse_schemas.secure_aggregation import SecureAggregation
from hub_doors import hub_doors, take_in
from pairwise_sites import ASKED, Rehearsal
from servers import NatsServer

PROJECT, RUN, STEP = "triage", "a" * 12, "r1-train"
NAMES = ("east", "north", "south")
KEYS = ("l0-mean", "l0-var")


@pytest.mark.timeout(120)
async def test_every_site_reads_the_sum_and_no_message_carries_a_sites_numbers(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    plan = make_plan(SecureAggregation(mode="pairwise"), participants=len(NAMES), weighting="uniform")
    ring = sum_ring(plan)
    all_sites = Rehearsal(tmp_path, NAMES, project=PROJECT, run=RUN)
    request = all_sites.open(STEP)
    orders = all_sites.share(request)
    rng = np.random.default_rng(3)
    values = {name: {key: rng.standard_normal(50) for key in KEYS} for name in NAMES}
    job = ExchangeJob(
        id="exchange", project=PROJECT, run=RUN, step=STEP, participants=NAMES, ring=ring,
        deadline=datetime.now(UTC) + timedelta(seconds=90),
    )  # fmt: skip
    where = {"project": PROJECT, "run": RUN, "step": STEP}
    keys: dict[str, SigningKey] = {}

    async def site(name: str, stack: AsyncExitStack) -> dict[str, bytes]:
        bus, _ = await nats_server.enrol(PROJECT, name)
        stack.push_async_callback(bus.close)
        masks = all_sites.sites[name].sums(
            RUN, orders.payloads[name], session=STEP, task=f"{STEP}/{name}", begin=lambda _: None, asked=ASKED
        )
        doors = Doors(bus, PROJECT, name, keys[name])
        async with open_exchange(doors, run=RUN, step=STEP) as exchange:
            return {
                key: await exchange.sum_bytes(key, masks.mask(key, encode_sum(key, array.tobytes(), ring)), timeout=60)
                for key, array in values[name].items()
            }

    async with asyncio.timeout(110), AsyncExitStack() as stack:
        aggregator = await nats_server.connect(Role.AGGREGATOR)
        stack.push_async_callback(aggregator.close)
        coordinator = await nats_server.connect(Role.COORDINATOR)
        stack.push_async_callback(coordinator.close)
        keys |= await take_in(coordinator, *NAMES, project=PROJECT, run=RUN, step=STEP)
        await stack.enter_async_context(hub_doors(coordinator, aggregator))
        ended, sums = await asyncio.gather(
            hold_session(job, aggregator), asyncio.gather(*(site(name, stack) for name in NAMES))
        )
        assert ended.error == ""
        stream = EXCHANGE.stream
        assert stream is not None
        async with aggregator.follow(stream, EXCHANGE.wildcard(**where)) as records:
            seen = [(await anext(records)).data for _ in range(len(NAMES) * len(KEYS))]
    for key in KEYS:
        plain = {name: encode_sum(key, values[name][key].tobytes(), ring) for name in NAMES}
        expected = sum(plain.values(), np.zeros(50, np.uint64)).tobytes()
        assert [one[key] for one in sums] == [expected] * len(NAMES)
        np.testing.assert_allclose(
            np.frombuffer(decode_sum(expected, ring)), sum(values[name][key] for name in NAMES), atol=1e-9
        )
        for elements in plain.values():
            assert not any(elements.tobytes() in data for data in seen)
