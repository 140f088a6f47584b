"""The compensator as a deployed process on real servers: its sums subtracted, replicas, kills, its memory at rest."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest

from forked_services import ForkedService, ForkedServices, forked_services
from hanse.embedded.nursery import NurseryKind
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.errors import ErrorCode
from hanse_fabric.identity.sealing import SealingKey
from hanse_fabric.messages.masking import CompensatorRecord, MaskAnswer, MaskRequest, MaskShape, Ring, RingPlan
from hanse_fabric.messages.objects import ObjectRef
from hanse_fabric.names import new_run_id
from hanse_fabric.subjects import COMPENSATORS, MASK_ANSWER, MASK_REQUEST, MASKS, PARTICIPANTS, Role
from hanse_fabric.tensors.file import decode_tensors, read_tensors, write_tensors
from hanse_fabric.tensors.layout import Entry, Layout, Rule
from hanse_fabric.tensors.refs import verify_bytes
from hanse_operations.servers.program import free_ports
from hanse_operations.servers.seaweedfs import BUCKET, store_keys
from hanse_privacy.ring.files import mask_shape, write_masked
from hanse_privacy.ring.tally import encode_tally, sum_tallies, tally_count
from masked_sites import MaskedSite, mask_request, masked_sites
from servers import NatsServer

PATIENCE_S = 90
PLAN = RingPlan(
    participants=5, default=Ring(bits=32, fraction=20, bound=8.0), metrics=("loss",),
    entries={"*average": Ring(bits=64, fraction=30, bound=65536.0)},
)  # fmt: skip


@dataclass
class Replica:
    process: subprocess.Popen[bytes] | ForkedService
    health: str

    def ready(self) -> bool:
        try:
            return self.get("/readyz").is_success
        except httpx.TransportError:
            return False

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.health}{path}", trust_env=False, timeout=10)

    async def wait_ready(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not await asyncio.to_thread(self.ready):
                assert self.process.poll() is None
                await asyncio.sleep(0.05)


class Coordinator:
    """What the coordinator and an aggregator do with the compensator, each by its own credentials."""

    def __init__(self, bus: NatsBus, reader: NatsBus, weed: Any, public_key: bytes) -> None:
        self.bus, self.reader, self.weed, self.public_key = bus, reader, weed, public_key
        self.run = new_run_id()

    async def enrol(self, sites: list[MaskedSite]) -> None:
        for site in sites:
            await self.bus.publish(
                PARTICIPANTS.of(project=site.project, participant=site.name), site.record().encode()
            )  # fmt: skip

    def request(self, sites: list[MaskedSite], session: str, update: MaskShape | None = None) -> MaskRequest:
        members = [
            site.sealed(self.public_key, run=self.run, session=session, update=update, tally=tally_count(PLAN))
            for site in sites
        ]
        return mask_request(sites[0].project, members, run=self.run, session=session)

    async def submit(self, request: MaskRequest) -> None:
        await self.bus.publish(self.subject(MASK_REQUEST, request), request.encode())

    def subject(self, row: Any, request: MaskRequest, **more: str) -> str:
        return str(row.of(project=request.project, run=request.run, session=request.session, **more))

    async def answer(self, request: MaskRequest, after: int = 0, patience: float = PATIENCE_S) -> MaskAnswer:
        stream, subject = MASK_ANSWER.stream, self.subject(MASK_ANSWER, request)
        assert stream is not None
        async with asyncio.timeout(patience), self.bus.follow(stream, subject, after=after) as records:
            return MaskAnswer.decode((await anext(records)).data)

    async def ask(self, request: MaskRequest) -> MaskAnswer:
        """The answer to this request: where another's overwrites it, it is asked for again."""
        assert MASK_ANSWER.stream is not None
        subject = self.subject(MASK_ANSWER, request)
        names = tuple(member.participant for member in request.members)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                known = await self.bus.last(MASK_ANSWER.stream, subject)
                await self.submit(request)
                with contextlib.suppress(TimeoutError):
                    answer = await self.answer(request, after=known.sequence if known else 0, patience=10)
                    if answer.participants == names:
                        return answer

    async def fetch(self, request: MaskRequest, ref: ObjectRef) -> bytes:
        """As an aggregator reads a sum of masks."""
        if ref.key is not None:
            store = self.weed.store("aggregator")
            try:
                data: bytes = await asyncio.to_thread(store.get, ref.key, limit=ref.size)
            finally:
                store.close()
        else:
            assert MASKS.stream is not None
            record = await self.reader.last(MASKS.stream, self.subject(MASKS, request, digest=ref.digest))
            assert record is not None
            data = record.data
        verify_bytes(ref, data)
        return data


Start = Callable[[], Replica]


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compensator") / "compensator.key"


@pytest.fixture(scope="module")
def server(new_nats: Callable[..., NatsServer]) -> NatsServer:
    """The module's own: another test's compensators must not take requests that are sealed to this key."""
    return new_nats()


@contextlib.contextmanager
def replicas(server: NatsServer, weed: Any, key_file: Path, services: ForkedServices | None = None) -> Iterator[Start]:
    """Starts replicas that share the key, and ends them: programs, or forked by `services`."""
    started: list[Replica] = []
    pair = store_keys(weed.folder)["compensator"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HANSE_")} | {
        "HANSE_BUS_URL": server.url,
        "HANSE_BUS_CREDS": str(server.authority.service_credentials(Role.COMPENSATOR)),
        "HANSE_STORE_URL": weed.url,
        "HANSE_STORE_ACCESS_KEY": pair.access_key,
        "HANSE_STORE_SECRET_KEY": pair.secret_key,
        "HANSE_STORE_BUCKET": BUCKET,
        "HANSE_COMPENSATOR_KEY": str(key_file),
    }

    def begin() -> Replica:
        port, log = free_ports(1)[0], key_file.with_suffix(".log")
        own = environment | {"HANSE_HEALTH_PORT": str(port)}
        process = program(own, log) if services is None else services.start("hanse_compensator", own, log)
        started.append(Replica(process, f"http://127.0.0.1:{port}"))
        return started[-1]

    try:
        yield begin
    finally:
        for replica in started:
            replica.process.kill()
            replica.process.wait(60)


def program(environment: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        return subprocess.Popen([sys.executable, "-m", "hanse_compensator"], env=environment, stderr=file, stdout=file)


@pytest.fixture
def start(services_nursery: NurseryKind, server: NatsServer, weed: Any, key_file: Path) -> Iterator[Start]:
    """Starts replicas of the test's own."""
    with (
        forked_services(services_nursery) as services,
        replicas(server, weed, key_file, services) as begin,
    ):
        yield begin


@pytest.fixture(scope="module")
def standing(server: NatsServer, weed: Any, key_file: Path) -> Iterator[Replica]:
    """A replica for the tests up to that which ends it: a program, whose memory is its own."""
    with replicas(server, weed, key_file) as begin:
        yield begin()


@pytest.fixture
async def coordinator(server: NatsServer, weed: Any, key_file: Path) -> AsyncIterator[Coordinator]:
    bus, reader = await server.connect(Role.COORDINATOR), await server.connect(Role.AGGREGATOR)
    yield Coordinator(bus, reader, weed, SealingKey.load_or_create(key_file).public_bytes)
    await bus.close()
    await reader.close()


def _layout(size: int) -> Layout:
    return Layout.of([Entry("weight", "F32", (size, 10)), Entry("mean", "F32", (size,), Rule.AVERAGE)])


def _hand_in(site: MaskedSite, folder: Path, layout: Layout, seed: int) -> tuple[Path, Path, bytes]:
    """(plain ring file, masked file, masked tally) of a site's update."""
    generator = np.random.default_rng(seed)
    plain, unmasked, masked = (folder / f"{site.name}.{kind}" for kind in ("plain", "ring", "masked"))
    arrays = {entry.name: generator.normal(size=entry.shape).astype(np.float32) for entry in layout}
    write_tensors(plain, layout, arrays)
    write_masked(plain, unmasked, PLAN, weight=1, seed=None)
    write_masked(plain, masked, PLAN, weight=1, seed=site.seed)
    return unmasked, masked, encode_tally(1, {"loss": float(seed)}, PLAN, seed=site.seed)


def _sum(files: list[Path]) -> dict[str, np.ndarray[Any, Any]]:
    """Ring sums of files in file order: all elements of 64 bits, and all of 32."""
    totals: dict[str, np.ndarray[Any, Any]] = {}
    for path in files:
        layout, arrays = read_tensors(path)
        for dtype, name in (("U64", "u64"), ("U32", "u32")):
            parts = [arrays[entry.name].reshape(-1) for entry in layout if entry.dtype == dtype]
            totals[name] = totals.get(name, 0) + np.concatenate(parts)
    return totals


async def test_the_compensator_announces_its_key_and_takes_little_memory(
    standing: Replica, coordinator: Coordinator
) -> None:
    await standing.wait_ready()
    assert COMPENSATORS.stream is not None
    record = await coordinator.bus.last(COMPENSATORS.stream, COMPENSATORS.of(name="compensator"))
    assert record is not None
    assert CompensatorRecord.decode(record.data).public_key == coordinator.public_key
    assert psutil.Process(standing.process.pid).memory_info().rss < 80 << 20


@pytest.mark.parametrize("size", [50, 60_000])
async def test_masked_sums_minus_the_compensators_are_the_plain_sums(
    standing: Replica, coordinator: Coordinator, tmp_path: Path, size: int
) -> None:
    """The small model's sums travel on the bus, the large one's through the store."""
    sites = masked_sites(f"sums-{size}", 5)
    await coordinator.enrol(sites)
    layout = _layout(size)
    answers = [_hand_in(site, tmp_path, layout, seed) for seed, site in enumerate(sites)]
    shape = mask_shape(read_tensors(answers[0][1])[0])
    request = coordinator.request(sites, "r1-train-1", shape)
    answer = await coordinator.ask(request)
    assert answer.sum is not None, answer.reason
    assert answer.sum.update is not None
    assert (answer.sum.update.key is None) == (size == 50)
    _, masks = decode_tensors(await coordinator.fetch(request, answer.sum.update))
    masked, plain = _sum([answer[1] for answer in answers]), _sum([answer[0] for answer in answers])
    for name in ("u64", "u32"):
        assert np.array_equal(masked[name] - masks[name], plain[name])
        assert not np.array_equal(masked[name], plain[name])
    tally = sum_tallies(
        [tally for _, _, tally in answers], PLAN, [await coordinator.fetch(request, answer.sum.tally)]
    )  # fmt: skip
    assert (tally.weight, tally.metrics) == (5.0, {"loss": 2.0})
    metrics = await asyncio.to_thread(standing.get, "/metrics")
    assert 'hanse_mask_requests_total{outcome="summed"}' in metrics.text


async def test_the_compensator_ends_in_order_at_sigterm(standing: Replica) -> None:
    """The last test of this replica."""
    standing.process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(standing.process.wait, 60) == 0


def test_the_compensators_key_is_readable_by_its_owner_alone_and_shown_by_a_command(
    services_nursery: NurseryKind, tmp_path: Path
) -> None:
    key_file = tmp_path / "new" / "compensator.key"
    environment = os.environ | {"HANSE_COMPENSATOR_KEY": str(key_file)}
    printed = subprocess.run(
        [sys.executable, "-m", "hanse_compensator", "key"], env=environment, capture_output=True, text=True, check=True,
        timeout=60,
    ).stdout  # fmt: skip
    with forked_services(services_nursery) as services:  # once more: it makes no other one
        assert services.start("hanse_compensator", environment, tmp_path / "again", "key").wait(60) == 0
    assert (tmp_path / "again").read_text() == printed
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    assert base64.b64decode(printed) == SealingKey.load(key_file).public_bytes


async def test_a_request_survives_kills_and_is_answered_alike_by_all(start: Start, coordinator: Coordinator) -> None:
    """A replica is killed while it sums; another answers; a third, asked again, answers the same."""
    sites = masked_sites("killed", 5)
    await coordinator.enrol(sites)
    request = coordinator.request(sites, "r1-train-1", MaskShape(u32=4_000_000))
    first = start()
    await first.wait_ready()
    await coordinator.submit(request)
    await asyncio.sleep(0.1)  # somewhere in its work; wherever it is, the outcome must be the same
    first.process.kill()
    start()
    answer = await coordinator.answer(request)
    assert answer.sum is not None, answer.reason
    start()
    assert await coordinator.ask(request) == answer


async def test_replicas_that_race_with_two_sets_answer_one(start: Start, coordinator: Coordinator) -> None:
    sites = masked_sites("race", 4)
    await coordinator.enrol(sites)
    for replica in (start(), start()):
        await replica.wait_ready()
    for index in range(5):
        sets = [coordinator.request(part, f"race-{index}") for part in (sites[:3], sites[1:])]
        await asyncio.gather(*(coordinator.submit(request) for request in sets))
        codes = [(await coordinator.ask(request)).code for request in sets]
        assert sorted(codes) == ["", ErrorCode.CONFLICT.code]


def test_compensator_settings_that_weaken_it_are_refused_by_name(key_file: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HANSE_")} | {
        "HANSE_COMPENSATOR_KEY": str(key_file), "HANSE_COMPENSATOR_MINIMUM": "1", "HANSE_LOG_FORMAT": "json",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "hanse_compensator"], env=environment, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == ErrorCode.INVALID_INPUT.value.exit_status
    line = (done.stderr or done.stdout).splitlines()[-1]
    assert "HANSE_COMPENSATOR_MINIMUM" in json.loads(line).get("message", line)
