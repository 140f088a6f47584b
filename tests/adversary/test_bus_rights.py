"""Every role against every subject, every call of JetStream and every place for an answer, on a real server.

The cases are generated from the tables: what a role's permissions do not name is refused, whatever it is.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator
from zlib import crc32

import pytest
from nats.aio.client import Client

from hanse_fabric.bus.matching import matches
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.bus.permissions import permissions_for
from hanse_fabric.subjects import STREAMS, SUBJECTS, Role
from overhearing import with_all_rights
from servers import NatsServer

TOKENS = {
    "project": "p", "participant": "south", "run": "r", "step": "s", "job": "j", "digest": "0" * 64, "key": "k",
    "session": "s", "work": "0" * 64, "name": "n", "invitation": "i", "version": "1", "area": "a", "who": "w",
    "region": "eu",
}  # fmt: skip
CALLS = (
    "INFO", "STREAM.NAMES", "STREAM.LIST", "STREAM.INFO.{s}", "STREAM.CREATE.{s}", "STREAM.UPDATE.{s}",
    "STREAM.DELETE.{s}", "STREAM.PURGE.{s}", "STREAM.MSG.GET.{s}", "STREAM.MSG.DELETE.{s}", "STREAM.SNAPSHOT.{s}",
    "STREAM.RESTORE.{s}", "DIRECT.GET.{s}", "DIRECT.GET.{s}.x", "CONSUMER.CREATE.{s}", "CONSUMER.CREATE.{s}.c",
    "CONSUMER.CREATE.{s}.c.>", "CONSUMER.DURABLE.CREATE.{s}.c", "CONSUMER.INFO.{s}.c", "CONSUMER.DELETE.{s}.c",
    "CONSUMER.NAMES.{s}", "CONSUMER.LIST.{s}", "CONSUMER.MSG.NEXT.{s}.c", "CONSUMER.PAUSE.{s}.c",
    "META.LEADER.STEPDOWN", "STREAM.LEADER.STEPDOWN.{s}", "ACCOUNT.PURGE.x",
)  # fmt: skip
PLACES = (
    "_INBOX.coordinator.x", "_INBOX.p.south.x", "_R_.abcdef.ghijkl", "$SYS.REQ.CLAIMS.UPDATE", "$JS.ACK.HANSE_JOBS.c.1",
    "$JS.FC.x", "$KV.hanse_keys.k", "$O.x", "other",
)  # fmt: skip
REPLIES = ("", *PLACES, *(f"$KV.{stream.name.removeprefix('KV_')}.k" for stream in STREAMS if stream.name[:3] == "KV_"))
PARTS = 3
"""A role tries a subject with every third of these, the next role with the next third: several roles try each pair. A
site, which is nobody's whom the hub's owner knows, tries all."""


def subjects() -> Iterator[str]:
    """All that one could publish to."""
    yield from (row.of(**{name: TOKENS.get(name, "x") for name in row.tokens}) for row in SUBJECTS)
    for call, stream in itertools.product(CALLS, STREAMS):
        yield f"$JS.API.{call.format(s=stream.name)}"
    yield from PLACES


WIDE = [*(row.wildcard() for row in SUBJECTS), *PLACES, ">", "*.>", "_INBOX.>", "_R_.>", "$JS.>", "$SYS.>", "$KV.>"]
"""All that one could listen to."""


async def connected(server: NatsServer, role: Role) -> NatsBus:
    if role is not Role.PARTICIPANT:
        return await server.connect(role)
    return (await server.enrol("p", "north"))[0]


class Refusals:
    """What the server has refused to a connection, by the subjects that it names."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.subjects: Counter[str] = Counter()
        before = self.client._error_cb

        async def note(error: Exception) -> None:
            text = str(error)
            if "permissions violation" in text.lower() and '"' in text:
                self.subjects[text.split('"')[1].lower()] += 1
            await before(error)

        self.client._error_cb = note

    async def settled(self) -> None:
        for _ in range(2):
            await self.client.flush(timeout=30)
        await asyncio.sleep(0)


@pytest.mark.parametrize("role", list(Role), ids=str)
async def test_a_role_publishes_what_the_table_grants_and_is_refused_all_else(
    nats_server: NatsServer, role: Role
) -> None:
    """Refused ones are sent alone: what is granted would be done. Each is sent with places for an answer, of all roles
    with every one: a server that answers a refused call would write there."""
    bus = await connected(nats_server, role)
    granted = permissions_for(role, region="hub", project="p", participant="north")["publish"]
    asked = sorted({one for one in subjects() if not any(matches(pattern, one) for pattern in granted)})
    assert len(asked) > 300
    refusals = Refusals(bus._connection.client)
    parts = 1 if role is Role.PARTICIPANT else PARTS
    sent = Counter[str]()
    for at, reply in enumerate(REPLIES):
        for one in asked:
            if (crc32(one.encode()) + at + list(Role).index(role)) % parts == 0:
                await bus._connection.client.publish(one, b"x", reply=reply)
                sent[one] += 1
        await refusals.settled()
    assert min(sent[one] for one in asked) >= len(REPLIES) // parts
    assert {one: refusals.subjects[one.lower()] for one in asked} == sent
    await bus.close()


@pytest.mark.parametrize("role", list(Role), ids=str)
async def test_a_role_listens_where_the_table_lets_it_and_nowhere_else(nats_server: NatsServer, role: Role) -> None:
    bus = await connected(nats_server, role)
    granted = permissions_for(role, region="hub", project="p", participant="north")["subscribe"]
    asked = sorted({one for one in WIDE if not any(matches(pattern, one) for pattern in granted)})
    refusals = Refusals(bus._connection.client)
    for one in asked:
        await bus._connection.client.subscribe(one)
    await refusals.settled()
    assert {one.lower() for one in asked} - refusals.subjects.keys() == set()
    await bus.close()


@pytest.mark.control("test_a_role_publishes_what_the_table_grants_and_is_refused_all_else")
async def test_control_a_subject_that_is_granted_is_not_among_the_refused(nats_server: NatsServer) -> None:
    bus = await connected(nats_server, Role.PARTICIPANT)
    refusals = Refusals(bus._connection.client)
    for one in permissions_for(Role.PARTICIPANT, region="hub", project="p", participant="north")["publish"]:
        await bus._connection.client.publish(one, b"x")
    await bus._connection.client.publish("other", b"x")
    await refusals.settled()
    assert refusals.subjects == {"other": 1}
    await bus.close()


@pytest.mark.control("test_a_role_listens_where_the_table_lets_it_and_nowhere_else")
async def test_control_a_user_without_permissions_of_his_own_listens_everywhere(nats_server: NatsServer) -> None:
    client = await with_all_rights(nats_server.url, nats_server.authority.folder)
    refusals = Refusals(client)
    for one in WIDE:
        await client.subscribe(one)
    await refusals.settled()
    assert refusals.subjects == {}
    await client.close()
