"""The participants of the benchmark of scale: each with its own identity and connection, without a trainer."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from hanse_fabric import __version__
from hanse_fabric.bus.authority import BusAuthority
from hanse_fabric.bus.jwt import credentials
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import Task, TaskKind
from hanse_fabric.messages.participants import ParticipantRecord
from hanse_fabric.records import Bucket
from hanse_fabric.schema import OpenSchema
from hanse_fabric.site import SiteIdentity, SiteLink
from hanse_fabric.site.identity import BUS_CREDS, SIGNING_KEY, SiteRecord
from hanse_fabric.store.transfer import HttpTransfer
from hanse_fabric.subjects import PARTICIPANTS, Role
from hanse_fabric.tensors.file import encode_tensors
from hanse_fabric.tensors.layout import Entry, Layout
from hanse_fabric.tensors.refs import ref_of_bytes

LAYOUT = Layout.of([Entry("output.weight", "F32", (3, 8)), Entry("output.bias", "F32", (3,))])
AT_ONCE = 16
PRESENCE_S = 60.0
HEARTBEAT_S = 30.0


@dataclass(frozen=True, slots=True)
class Crowd:
    """The participants at one leaf node: `<leaf>-00000` and on."""

    authority: Path
    hub_bus: str
    project: str
    bus: str
    leaf: int
    count: int
    homes: Path

    def text(self) -> str:
        return json.dumps(asdict(self), default=str)

    @classmethod
    def read(cls, path: Path) -> Crowd:
        """What `text` has written."""
        body = json.loads(path.read_text())
        return cls(**body | {"homes": Path(body["homes"]), "authority": Path(body["authority"])})


async def play(crowd: Crowd) -> None:
    """Join all, say `joined`, and answer their tasks until the process is ended."""
    gate, authority = asyncio.Semaphore(AT_ONCE), BusAuthority(crowd.authority)
    creds = authority.service_credentials(Role.COORDINATOR)
    hub = await NatsBus.connect(crowd.hub_bus, "coordinator", creds=creds, timeout=300.0)
    transfer = HttpTransfer()
    members = Bucket(hub, PARTICIPANTS, ParticipantRecord)

    joined = asyncio.Semaphore(0)
    async with asyncio.TaskGroup() as group:

        async def join(index: int) -> None:
            async with gate:
                name = f"site-{crowd.leaf}-{index:05d}"
                identity, record = enrolled(crowd, authority, name)
                await members.create(record, project=crowd.project, participant=name)
                bus = await NatsBus.connect(
                    crowd.bus, f"{crowd.project}.{name}", creds=identity.creds, inbox_prefix=identity.inbox_prefix,
                    timeout=300.0, heartbeat=HEARTBEAT_S,
                )  # fmt: skip
                # One transfer for all of a process: each would read the system's certificates for itself.
                link, ready = SiteLink(bus, identity, transfer), asyncio.Event()
                group.create_task(take_part(link, ready, index / crowd.count))
                await ready.wait()
            joined.release()

        for index in range(crowd.count):
            group.create_task(join(index))
        for _ in range(crowd.count):
            await joined.acquire()
        await hub.close()
        print("joined", flush=True)
        sys.stdout.close()


def enrolled(crowd: Crowd, authority: BusAuthority, name: str) -> tuple[SiteIdentity, ParticipantRecord]:
    """What enrolling leaves at the site and at the hub; by the operator's keys instead of the API, which takes time for
    each that is not what is measured."""
    home = crowd.homes / name
    home.mkdir(parents=True)
    signing, bus, now = SigningKey.create(), KeyPair.create(KeyKind.USER), datetime.now(UTC)
    signing.save(home / SIGNING_KEY)
    (home / BUS_CREDS).write_text(credentials(authority.participant_jwt(crowd.project, name, bus.public), bus))
    site = SiteRecord(
        hub="http://127.0.0.1", hub_name="", project=crowd.project, participant=name, bus_url=crowd.bus, api_key="",
        data_schema=OpenSchema(), token_id="none", joined_at=now,  # noqa: S106 - there was no token
    )  # fmt: skip
    record = ParticipantRecord(
        project=crowd.project, participant=name, public_key=base64.b64encode(signing.public_bytes),
        bus_key=bus.public, enrolled_at=now, version=__version__,
    )  # fmt: skip
    return SiteIdentity(home, site), record


async def take_part(link: SiteLink, ready: asyncio.Event, phase: float) -> None:
    """Answer every task, and show life once a minute, each participant at its own moment."""
    async with asyncio.TaskGroup() as group, link.tasks() as tasks:
        await link.presence()
        ready.set()
        group.create_task(show_life(link, phase))
        async for opened in tasks:
            await answer(link, opened.task)


async def show_life(link: SiteLink, phase: float) -> None:
    await asyncio.sleep(phase * PRESENCE_S)
    while True:
        await asyncio.sleep(PRESENCE_S)
        await link.presence()


async def answer(link: SiteLink, task: Task) -> None:
    """An update of 27 numbers by the task's seed."""
    generator = np.random.default_rng(task.seed)
    arrays = {entry.name: generator.standard_normal(entry.shape, dtype=np.float32) * 0.01 for entry in LAYOUT}
    data = encode_tensors(LAYOUT, arrays)
    ref = ref_of_bytes(data)
    await link.send_update_bytes(task, ref, data)
    await link.answer(task, update=ref, examples=0 if task.kind is TaskKind.INITIALIZE else 10)
