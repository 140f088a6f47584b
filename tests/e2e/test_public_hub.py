"""`hanse up --public`: a hub and two sites on machines of their own, by the lines that the commands print and nothing
else. The sites go out through a proxy alone, which asks for a password and leads to the ports that were chosen for the
hub, and to no others: one by HTTP's CONNECT, one by SOCKS."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

import forked_sites
from forked_commands import Commands
from network_namespaces import Machine, can_be_made, machines

HANSE = (sys.executable, "-m", "hanse")
SCHEMA = "{kind: tabular, features: [{name: age}, {name: crp}], target: admitted, task: classification, classes: 2}"
# Wide enough to travel by the store, both ways.
JOB = "{rounds: 6, participants: {minimum: 2}, model: {name: mlp, hidden: [256, 256]}, train: {batch_size: 32}}"
OWN = {"HANSE_URL", "HANSE_API_KEY", "HANSE_CA", "HANSE_PROXY", "NO_PROXY", "no_proxy"}
NAME, PASSWORD, PORT = "clinics", "p:w@rd", 3128
PORTS = {"http": 443, "public bus": 8443, "public store": 9443}
WAY_OUT = Path(__file__).parents[1] / "way_out.py"


@pytest.fixture
def four() -> Iterator[list[Machine]]:
    if not can_be_made():
        pytest.skip("network namespaces need root and iproute2")
    with machines(["hub", "proxy"], inside=["north", "south"]) as made:
        yield made


class Folder:
    """Commands on a machine, in a folder that stands for its disk."""

    def __init__(self, machine: Machine, commands: Commands, folder: Path, proxy: str = "") -> None:
        self.machine, self.folder, self._commands = machine, folder, commands
        folder.mkdir()
        self._environment = {name: value for name, value in os.environ.items() if name not in OWN}
        if proxy:
            self._environment["HANSE_PROXY"] = proxy

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self._commands.run(
            ["hanse", *words], cwd=self.folder, env=self._environment, network=self.machine.name
        )  # fmt: skip

    def well(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, *words: str) -> subprocess.Popen[str]:
        with (self.folder / "log").open("a") as log:
            return subprocess.Popen(
                self.machine.at(*HANSE, *words), cwd=self.folder, env=self._environment, text=True, stderr=log,
                stdout=subprocess.PIPE,
            )  # fmt: skip

    @contextmanager
    def open_site(self, sites: Path, name: str) -> Iterator[None]:
        """The site that has joined here runs, by the line that joining has printed, until it is told to end."""
        words, log = ["hanse", "site", "run", "--home", name, "--data", "data.csv"], self.folder / "log"
        with forked_sites.running(
            words, sites, cwd=self.folder, env=self._environment, log=log, network=self.machine.name
        ) as process:
            try:
                yield
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(60)


def _table(path: Path, seed: int) -> None:
    draw = np.random.default_rng(seed)
    age, crp = draw.uniform(20, 90, 100), draw.exponential(20, 100)
    lines = [f"{a:.1f},{c:.1f},{int(a / 90 + c / 40 > 1.1)}" for a, c in zip(age, crp, strict=True)]
    path.write_text("\n".join(["age,crp,admitted", *lines]) + "\n")


def _can_connect(machine: Machine, address: str, port: int) -> bool:
    def connect() -> bool:
        forked_sites.enter(machine.name)
        try:
            socket.create_connection((address, port), 5).close()
        except OSError:
            return False
        return True

    with ThreadPoolExecutor(1) as there:  # a thread is on one machine alone
        return there.submit(connect).result(30)


class WayOut:
    """The proxy, on its machine."""

    def __init__(self, machine: Machine, log: Path) -> None:
        self._machine, self._log = machine, log
        self._process: subprocess.Popen[str] | None = None

    def begin(self) -> None:
        with self._log.open("a") as log:
            words = (sys.executable, str(WAY_OUT), "0.0.0.0", str(PORT), NAME, PASSWORD)  # noqa: S104 - of its own network
            leads_to = [str(port) for port in PORTS.values()]
            self._process = subprocess.Popen(self._machine.at(*words, *leads_to), stdout=log, text=True)
        deadline = time.monotonic() + 60
        while not _can_connect(self._machine, "127.0.0.1", PORT):
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def opened(self) -> list[str]:
        return self._log.read_text().splitlines()


@contextmanager
def ended(up: subprocess.Popen[str], way: WayOut) -> Iterator[None]:
    """Hub and proxy end with the block."""
    try:
        yield
    finally:
        up.send_signal(signal.SIGTERM)
        up.wait(60)
        way.end()


@pytest.mark.timeout(300)
def test_sites_behind_a_proxy_join_by_the_printed_line_and_train_over_tls(
    four: list[Machine], commands: Commands, sites: Path, tmp_path: Path
) -> None:
    hub = Folder(four[0], commands, tmp_path / "hub")
    way, door = WayOut(four[1], tmp_path / "proxy.log"), four[2].address.rpartition(".")[0] + ".1"
    schemes = {"north": "http", "south": "socks5h"}
    clinics = {
        name: Folder(
            machine, commands, tmp_path / name, f"{schemes[name]}://{NAME}:{quote(PASSWORD, safe='')}@{door}:{PORT}"
        )
        for name, machine in zip(schemes, four[2:], strict=True)
    }
    chosen = ("--port", "443", "--bus-port", "8443", "--store-port", "9443", "--console-port", "10443")
    up = hub.start("up", "--public", hub.machine.address, *chosen, "--json")
    with ended(up, way), ExitStack() as open_sites:
        assert up.stdout is not None
        told = json.loads(up.stdout.readline())
        assert told["ports"] == {**PORTS, "console": 10443}
        way.begin()
        (hub.folder / "schema.yaml").write_text(SCHEMA)
        (hub.folder / "job.yaml").write_text(JOB)
        hub.well("project", "create", "triage", "--schema", "schema.yaml")
        for seed, (name, site) in enumerate(clinics.items()):
            line = hub.well("project", "invite", "triage", name).strip().splitlines()[-1]
            words = shlex.split(line)
            assert words[:4] == ["hanse", "site", "join", told["url"]]
            # Without the fingerprint the hub is a stranger; with another one nothing is sent, and the token stays good.
            assert "certificate is refused" in site.run(*words[1:-2]).stderr
            other = words[-1][:-1] + ("0" if words[-1][-1] != "0" else "1")
            refused = site.run(*words[1:-1], other)
            assert (refused.returncode, "expected " + other in refused.stderr) == (7, True), refused.stderr
            site.well(*words[1:])
            _table(site.folder / "data.csv", seed)
            open_sites.enter_context(site.open_site(sites, name))
        run = hub.start("run", "submit", "triage", "job.yaml", "--watch", "--no-ask", "--json")
        assert run.stdout is not None
        next(line for line in run.stdout if "round-finished" in line)
        way.end()
        before = len(way.opened())
        way.begin()
        run.communicate(timeout=240)
        assert run.returncode == 0
        assert len(way.opened()) > before + 1, "the sites came back through the proxy that came back"
        hub.well("model", "download", "triage", "6", "model.safetensors")
        inner = json.loads((hub.folder / ".hanse/hub/ports.json").read_text())
        for name, port in inner.items():
            assert _can_connect(hub.machine, "127.0.0.1", port), name
            assert _can_connect(four[1], hub.machine.address, port) == (name in told["ports"]), name
            assert not _can_connect(four[2], hub.machine.address, port), "a site reaches the proxy alone"
    assert {line.split()[0] for line in way.opened()} == {"http", "socks", "serves"}
    for name, site in clinics.items():
        assert PASSWORD not in (site.folder / "log").read_text()
        assert json.loads((site.folder / name / "site.json").read_text())["bus_url"].startswith("wss://")
        left = (site.folder / name / "outbox.jsonl").read_text()
        assert '"to":"updates/triage/' in left, "updates went by the store"
