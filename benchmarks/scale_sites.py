"""The participants of the benchmark of scale: each with its own identity and connection, without a trainer."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from nats.aio.transport import TcpTransport

import hanse
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Task, TaskKind
from hanse_fabric.store.transfer import HttpTransfer
from hanse_fabric.tensors.file import encode_tensors
from hanse_fabric.tensors.layout import Entry, Layout
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_fabric.tls import client_context
from hanse_site import SiteIdentity, SiteLink, enrol
from hanse_site.answering import result_for

LAYOUT = Layout.of([Entry("output.weight", "F32", (3, 8)), Entry("output.bias", "F32", (3,))])
AT_ONCE = 16
PHASES = ("enrolled", "joined")
ALIVE = "alive"
"""The line after which every participant shows life, until it is confirmed."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """The participants at one leaf node: `<leaf>-00000` and on."""

    hub: str
    api_key: str
    project: str
    bus: str
    region: str
    ca: str
    leaf: int
    count: int
    homes: Path

    def text(self) -> str:
        return json.dumps(asdict(self), default=str)

    @classmethod
    def read(cls, path: Path) -> Crowd:
        """What `text` has written."""
        body = json.loads(path.read_text())
        return cls(**body | {"homes": Path(body["homes"])})


async def play(crowd: Crowd) -> None:
    """Enrol all, say `enrolled`, have them follow their tasks, say `joined`; then answer until the process is ended.

    Each of the two begins when a line is read; then each line is answered: by what was connected since, or ALIVE by
    a line once every participant has had an answer.
    """
    client = hanse.connect(crowd.hub, api_key=crowd.api_key, patience=300.0)
    project = await asyncio.to_thread(client.projects.get, crowd.project)
    await asyncio.to_thread(sys.stdin.readline)
    gate = asyncio.Semaphore(AT_ONCE)

    async def enrolled(index: int) -> SiteIdentity:
        async with gate:
            name = f"site-{crowd.leaf}-{index:05d}"
            token = await asyncio.to_thread(project.invite, name, region=crowd.region)
            return await enrol(crowd.hub, token, crowd.homes / name, timeout=300.0)

    identities = await asyncio.gather(*(enrolled(index) for index in range(crowd.count)))
    client.close()
    await next_phase("enrolled")
    away, back, links = set[int](), list[int](), list[SiteLink]()
    joined, attempts, trust = asyncio.Semaphore(0), count_attempts(), client_context(Path(crowd.ca))
    async with asyncio.TaskGroup() as group:

        async def join(index: int, identity: SiteIdentity) -> None:
            async with gate:
                bus = await NatsBus.connect(
                    crowd.bus, f"{crowd.project}.{identity.participant}", creds=identity.creds,
                    inbox_prefix=identity.inbox_prefix, tls=trust, timeout=300.0,
                )  # fmt: skip
                bus._connection.on_disconnect.append(lambda: away.add(index))
                bus._connection.on_reconnect.append(lambda: away.discard(index))
                bus._connection.on_reconnect.append(lambda: back.append(index))
                link = SiteLink(bus, identity, HttpTransfer(), region=crowd.region)
                links.append(link)
                ready = asyncio.Event()
                group.create_task(take_part(link, ready, index / crowd.count))
                await ready.wait()
            joined.release()

        for index, identity in enumerate(identities):
            group.create_task(join(index, identity))
        for _ in range(crowd.count):
            await joined.acquire()
        print("joined", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            if line.strip() == ALIVE:
                await asyncio.gather(*(answered(link, gate) for link in links))
                print(ALIVE, flush=True)
                continue
            print(json.dumps({"attempts": attempts, "away": len(away), "back": len(back)}), flush=True)
            attempts.clear()
            back.clear()


def count_attempts() -> Counter[int]:
    """Attempts to connect from now on, by the second of the machine's clock."""
    attempts, connect = Counter[int](), TcpTransport.connect

    async def counted(self: TcpTransport, *how: Any, **more: Any) -> None:
        attempts[int(time.time())] += 1
        await connect(self, *how, **more)

    TcpTransport.connect = counted  # type: ignore[method-assign]
    return attempts


async def next_phase(done: str) -> None:
    print(done, flush=True)
    await asyncio.to_thread(sys.stdin.readline)


async def take_part(link: SiteLink, ready: asyncio.Event, phase: float) -> None:
    """Answer every task, and show life once a minute, each participant at its own moment."""
    async with asyncio.TaskGroup() as group, link.tasks() as tasks:
        await live(link)
        ready.set()
        group.create_task(show_life(link, phase))
        async for opened in tasks:
            await answer(link, opened.task)


async def show_life(link: SiteLink, phase: float) -> None:
    await asyncio.sleep(phase * link.pace)
    while True:
        await live(link)
        await asyncio.sleep(link.pace)


async def live(link: SiteLink) -> bool:
    """A sign of life; one that is not confirmed is no end, as at a datapod: the next follows. Whether it was."""
    try:
        await link.presence()
        return True
    except HanseError as error:
        if error.code in (ErrorCode.FORBIDDEN, ErrorCode.UNAUTHENTICATED):
            raise
        print(error.message, file=sys.stderr, flush=True)
        await asyncio.sleep(0.2)
        return False


async def answered(link: SiteLink, gate: asyncio.Semaphore) -> None:
    """Show life until the hub has confirmed it."""
    async with gate:
        while not await live(link):
            pass  # it has waited for its time


async def answer(link: SiteLink, task: Task) -> None:
    """An update of 27 numbers by the task's seed."""
    generator = np.random.default_rng(task.seed)
    arrays = {entry.name: generator.standard_normal(entry.shape, dtype=np.float32) * 0.01 for entry in LAYOUT}
    data = encode_tensors(LAYOUT, arrays)
    ref = ref_of_bytes(data)
    await link.send_update_bytes(task, ref, data)
    await link.answer(result_for(task, update=ref, examples=0 if task.kind is TaskKind.INITIALIZE else 10))
