"""`hanse up --public` with a certificate that is given, behind a front that has a name at port 443 for each of its
doors: two sites train over it through a proxy that leads to port 443 alone, and know the authority by its file."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import hanse
from certificates import ThrowawayCa
from e2e.deployed import completed, honest, site, start_job
from forked_commands import Commands
from hanse.embedded.probe import main as probe
from hanse_fabric import proxies
from hanse_fabric.errors import ErrorCode, HanseError
from way_out import WayOut

HANSE = (sys.executable, "-m", "hanse")
OWN = {"HANSE_URL", "HANSE_API_KEY", "HANSE_CA", "HANSE_PROXY", "NO_PROXY", "no_proxy"}
ADDRESSES = {
    "http": "https://hub.test", "public bus": "wss://bus.test", "public store": "https://store.test",
    "console": "https://console.test",
}  # fmt: skip
NAME, PASSWORD = "clinics", "secret"


@dataclass(frozen=True, slots=True)
class GivenHub:
    """What the hub says of itself, and what a site needs."""

    told: dict[str, Any]
    state: Path
    ca: Path
    proxy: str
    way: WayOut


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GivenHub]:
    folder = tmp_path_factory.mktemp("given")
    authority = ThrowawayCa(folder)
    pair = authority.issue("hub", *(url.partition("://")[2] for url in ADDRESSES.values()))
    words = [
        "--public",
        "127.0.0.1",
        "--bind",
        "127.0.0.1",
        "--cert",
        pair.cert,
        "--key",
        pair.key,
        "--ca",
        authority.cert,
    ]
    words += ["--url", ADDRESSES["http"], "--bus-url", ADDRESSES["public bus"], "--no-link", "--json"]
    words += ["--store-url", ADDRESSES["public store"], "--console-url", ADDRESSES["console"]]
    environment = {name: value for name, value in os.environ.items() if name not in OWN}
    with (folder / "log").open("w") as log:
        started = subprocess.Popen(
            [*HANSE, "up", "--state", str(folder / "hub"), *words], text=True, env=environment,
            stdout=subprocess.PIPE, stderr=log,
        )  # fmt: skip
    try:
        assert started.stdout is not None
        line = started.stdout.readline()
        assert line, (folder / "log").read_text()
        told = json.loads(line)
        places = {ADDRESSES[use].partition("://")[2]: f"127.0.0.1:{port}" for use, port in told["ports"].items()}
        way = WayOut(NAME, PASSWORD, places, ports=[443])
        with serving(way) as port:
            yield GivenHub(told, folder / "hub", authority.cert, f"http://{NAME}:{PASSWORD}@127.0.0.1:{port}", way)
    finally:
        started.send_signal(signal.SIGTERM)
        started.wait(60)


class serving:  # noqa: N801 - it reads as a context
    """The proxy and the front behind it, in a thread of their own."""

    def __init__(self, way: WayOut) -> None:
        self._way, self._loop, self._ready = way, asyncio.new_event_loop(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._port = 0

    def __enter__(self) -> int:
        self._thread.start()
        assert self._ready.wait(30)
        return self._port

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)

    def _run(self) -> None:
        server = self._loop.run_until_complete(asyncio.start_server(self._way.serve, "127.0.0.1", 0))
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        open_still = asyncio.all_tasks(self._loop)
        for task in open_still:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*open_still, return_exceptions=True))
        self._loop.close()


@pytest.fixture
def client(hub: GivenHub, monkeypatch: pytest.MonkeyPatch) -> Iterator[hanse.Hub]:
    """The operator's, through the proxy, as sites in this process go."""
    for name in OWN:
        monkeypatch.delenv(name, raising=False)
    proxies.use(hub.proxy)
    try:
        with hanse.connect(hub.told["url"], api_key=Path(hub.told["key_file"]).read_text().strip(), ca=hub.ca) as made:
            yield made
    finally:
        proxies.use("")


def test_it_tells_the_addresses_of_the_front_and_prints_no_link(hub: GivenHub) -> None:
    assert hub.told["url"] == ADDRESSES["http"]
    assert hub.told["addresses"] == ADDRESSES
    assert (hub.told["console"], hub.told["console_link"]) == (ADDRESSES["console"], None)
    assert hub.told["ca"] == str(hub.ca)
    assert not (hub.state / "tls").exists(), "it makes no authority of its own beside what it was given"


def test_sites_train_over_it_through_port_443_alone(hub: GivenHub, client: hanse.Hub, tmp_path: Path) -> None:
    project = client.projects.create("triage", schema={"kind": "open"})
    with site(project, "north", tmp_path, honest(), ca=hub.ca), site(project, "south", tmp_path, honest(), ca=hub.ca):
        completed(project.run(start_job(project)))
    assert json.loads((tmp_path / "north" / "site.json").read_text())["bus_url"] == ADDRESSES["public bus"]
    assert {to for _, to in hub.way.seen} == {"hub.test:443", "bus.test:443", "store.test:443"}
    assert hub.way.shut == []


def test_another_authority_is_refused_in_words_and_the_token_stays_good(
    hub: GivenHub, client: hanse.Hub, tmp_path: Path, commands: Commands
) -> None:
    project = client.projects.create("refusals", schema={"kind": "open"})
    token, other = project.invite("north"), ThrowawayCa(tmp_path, "other").cert
    for words in (["--ca", str(other)], []):
        environment = {
            **{name: value for name, value in os.environ.items() if name not in OWN},
            "HANSE_PROXY": hub.proxy,
        }
        line = ["hanse", "site", "join", hub.told["url"], token, "--home", str(tmp_path / "north"), *words]
        done = commands.run(line, cwd=tmp_path, env=environment)
        assert done.returncode != 0
        assert "certificate is refused" in done.stderr
        assert "Traceback" not in done.stderr
        assert len(done.stderr.splitlines()) <= 2
    with site(project, "north", tmp_path, honest(), token=token, ca=hub.ca):
        pass
    with pytest.raises(HanseError, match="certificate") as caught:
        hanse.connect(hub.told["url"], api_key="hanse_x", ca=other, patience=1.0).info()
    assert caught.value.code is ErrorCode.UNAVAILABLE


def test_a_probe_finds_all_of_it_well(hub: GivenHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert probe([str(hub.state)]) == 0
    assert probe([str(tmp_path)]) == 1
    assert "no hub runs there" in capsys.readouterr().err
