"""The byte ledger of a deployed run is what proxies before the bus and the store read off the wire, to the byte."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from counting_proxy import CountingProxy, Seen, Wire
from e2e.algorithm_jobs import SCHEMA, SITES, write_images
from e2e.algorithm_jobs import job as algorithm_job
from e2e.deployed import DeployedHub
from hanse.hub import Project, Run
from hanse_fabric.doors.byte_ledger import message_bytes
from hanse_fabric.doors.frames import read_request
from hanse_operations.servers.program import free_ports

LINKS = ("bus_up", "bus_down", "store_up", "store_down")
ROUNDS = 2


def short_job(**changes: Any) -> dict[str, Any]:
    return algorithm_job(**changes) | {"rounds": ROUNDS}


SMALL = short_job()
LARGE = short_job(model={"name": "mlp", "hidden": [384, 128]})
FEW = {"up": [{"name": "top_k", "fraction": 0.5}, {"name": "float16"}], "error_feedback": True}
LARGER = short_job(model={"name": "mlp", "hidden": [768, 128]})  # half of its values are too many for messages
CODED = LARGER | {"codec": FEW}
DIFFERENCES = LARGER | {"codec": FEW | {"down": [{"name": "float16"}, {"name": "delta"}, {"name": "zstd"}]}}


@dataclass
class Watched:
    """A hub whose bus and store sites reach through proxies."""

    hub: DeployedHub
    bus: CountingProxy
    store: CountingProxy
    project: Project

    def run(self, job: dict[str, Any]) -> Run:
        run = self.project.run(job)
        run.wait()
        return run


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    bus_port, store_port = free_ports(2)
    settings = {
        "HANSE_BUS_PUBLIC_URL": f"nats://127.0.0.1:{bus_port}",
        "HANSE_STORE_PUBLIC_URL": f"http://127.0.0.1:{store_port}",
    }
    hub = DeployedHub(folder / "hub", settings=settings)
    hub.start()
    own = int(re.findall(r":(\d+)", hub.hub.bus_url)[0])
    ports = hub.hub.state.ports(None)
    bus = CountingProxy(own, listen=bus_port, http=False)
    store = CountingProxy(ports["store"], listen=store_port, http=True)
    write_images(folder / "data")
    with hub.client() as client:
        project = client.projects.create("watched", schema=SCHEMA)
        for name in SITES:
            hub.start_datapod(
                project, name, home=folder / name, data=folder / "data" / name / "train.npz",
                test=folder / "data" / name / "test.npz",
            )  # fmt: skip
        yield Watched(hub, bus, store, project)
    hub.stop()
    bus.close()
    store.close()


def off_the_wire(bus: CountingProxy, store: CountingProxy, run: str) -> Counter[tuple[str, str, str]]:
    """Bytes of a run by round, site and link, from what passed by: requests say what they are about, and a tell is
    marked."""
    found: Counter[tuple[str, str, str]] = Counter()
    asked: dict[str, tuple[str, str]] = {}
    for seen in sorted(bus.seen, key=lambda each: each.way == "down"):
        words = seen.name.split(".")
        if words[2:3] == ["door"] and seen.way == "up":
            head, _ = read_request(seen.content)
            if head.run == run and head.step is not None:
                where = (_round(head.step), head.participant)
                asked[seen.reply] = where
                found[*where, "bus_up"] += seen.size
        elif words[2:3] == ["tell"]:
            mark = re.search(rb"Hanse-Task: (\w+)\.([\w-]+)\.", seen.headers)
            if mark and mark[1].decode() == run:
                found[_round(mark[2].decode()), words[-1], "bus_down"] += seen.size
        elif seen.name in asked:
            found[*asked[seen.name], "bus_down"] += seen.size
    for seen in list(store.seen):
        if f"/{run}/" in seen.name and seen.name.startswith("PUT" if seen.way == "up" else "GET"):
            found["", "", f"store_{seen.way}"] += seen.size
    return found


def _round(step: str) -> str:
    found = re.match(r"r(\d+)-", step)
    return found[1] if found else "0"


@pytest.mark.parametrize(
    ("job", "carried_by"),
    [(LARGE, "store"), (SMALL, "bus"), (CODED, "store"), (DIFFERENCES, "store")],
    ids=["by-store", "by-bus", "few-values-up", "differences-down"],
)
def test_the_ledger_of_a_run_is_what_passed_on_the_wire(watched: Watched, job: Any, carried_by: str) -> None:
    run = watched.run(job)
    history = run.history
    assert len(history) == job["rounds"]

    wire = off_the_wire(watched.bus, watched.store, run.id)
    # What is written down last is written a second later, at most.
    told = _settled(run, sum(wire.values()))
    for number, sites in told.wire.items():
        for name, links in sites.items():
            for link in ("bus_up", "bus_down"):
                assert links[link] == wire[str(number), name, link], (number, name, link)
    assert told.on_the_wire() == {link: sum(n for key, n in wire.items() if key[2] == link) for link in sorted(LINKS)}
    assert {name for sites in told.wire.values() for name in sites} == set(SITES)
    # Beside it stand what the formulas say, and what tasks and answers name: both are models and updates alone.
    # Of differences the formulas say nothing.
    down = job.get("codec", {}).get("down")
    assert all(set(each["formula"]) == {"up"} | ({"down"} if not down else set()) for each in told.rounds)
    if down:
        assert max(each["bytes"]["down"] for each in told.rounds[1:]) < told.rounds[0]["bytes"]["down"]
    planned = {way: sum(each["formula"][way] for each in told.rounds) for way in told.rounds[0]["formula"]}
    for way in planned:
        seen = told.on_the_wire()[f"bus_{way}"] + told.on_the_wire()[f"store_{way}"]
        assert seen > planned[way] > 0
        assert (told.on_the_wire()[f"store_{way}"] >= planned[way]) == (carried_by == "store")
    assert "with all that controls the run the hub saw" in told.traffic()


def _settled(run: Run, total: int) -> Any:
    began = time.monotonic()
    while True:
        told = run.history
        if sum(told.on_the_wire().values()) >= total or time.monotonic() - began > 30:
            return told
        time.sleep(0.05)


def test_of_a_run_under_masks_nobody_is_told_how_much_a_single_site_sent(watched: Watched) -> None:
    narrow = {"weighting": "uniform", "secure_aggregation": {"mode": "compensator", "bits": 8, "bound": 0.5}}
    run = watched.run(SMALL | narrow)
    wire = off_the_wire(watched.bus, watched.store, run.id)
    told = _settled(run, sum(wire.values()))
    assert {name for sites in told.wire.values() for name in sites} == {"(all)"}
    assert sum(told.on_the_wire().values()) == sum(wire.values())
    # Of 8 bits an update is a quarter of the model in float32.
    assert [each["formula"]["down"] / each["formula"]["up"] for each in told.rounds] == [4.0] * SMALL["rounds"]


def test_a_message_has_the_bytes_that_nats_counts() -> None:
    line = Wire(b"HMSG a.b 1 _INBOX.x 22 25\r\nNATS/1.0\r\nname: an\r\n\r\nabc\r\nPING\r\n")
    seen = CountingProxy._nats_message("down", line)
    assert isinstance(seen, Seen)
    assert (seen.name, seen.reply, seen.content) == ("a.b", "_INBOX.x", b"abc")
    assert seen.size == message_bytes(b"abc", {"name": "an"}) == 25
