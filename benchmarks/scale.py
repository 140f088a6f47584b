"""Many participants over leaf nodes: `make bench-scale` (ARGS='--participants 10000 --json').

A hub of real services, nats-servers as leaf nodes of its bus, and participants with an identity, credentials and a
connection of their own each, which are played by one process for each leaf: they fetch the model, and answer with an
update of it. What is measured is the hub and the bus, not training.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import shutil
import statistics
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import psutil
from scale_sites import Crowd, play

from hanse.embedded.hub import EmbeddedHub
from hanse_fabric.bus.authority import BusAuthority
from hanse_fabric.bus.server import LeafRemote
from hanse_fabric.servers.nats import nats_program
from hanse_fabric.servers.program import Program, free_ports

SCHEMA = {"kind": "array", "shape": [8], "task": "classification", "classes": 3}
SERVICES = ("coordinator", "aggregator", "model-registry", "compensator", "nats-server", "object-store")
PATIENCE_S = 1800.0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--participants", type=int, default=400)
    parser.add_argument("--leaves", type=int, default=4)
    parser.add_argument("--fraction", type=float, default=0.1, help="share of the participants that a round samples")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--play", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


class Leaf:
    """A leaf node, and the process that plays the participants at it."""

    def __init__(self, index: int, folder: Path, hub: EmbeddedHub, count: int, homes: Path) -> None:
        self.index, self._folder, self._hub = index, folder / f"leaf-{index}", hub
        self._count, self._homes = count, homes
        self.port, self._watched = free_ports(2)
        self._processes: list[asyncio.subprocess.Process] = []

    async def start(self) -> None:
        """Start the leaf node, and have its participants join."""
        authority = BusAuthority(self._hub.state.authority)
        remote = LeafRemote(
            self._hub.leaf_urls, authority.leaf_credentials(),
            system_credentials=authority.leaf_system_credentials(), name=f"leaf-{self.index}",
        )  # fmt: skip
        self._folder.mkdir()
        program = nats_program(self._folder, authority, port=self.port, leaf=remote, monitoring_port=self._watched)
        self._processes.append(await _run(program.argv, self._folder / "log"))
        await _answers(program)
        crowd = Crowd(
            self._hub.state.authority, self._hub.bus_url, "crowd", f"nats://127.0.0.1:{self.port}", self.index,
            self._count, self._homes / str(self.index),
        )  # fmt: skip
        told = self._folder / "crowd.json"
        told.write_text(crowd.text())
        told.chmod(0o600)
        self._processes.append(
            await _run((sys.executable, __file__, "--play", str(told)), self._folder / "players.log", listen=True)
        )

    async def joined(self) -> None:
        """Wait until all participants are connected."""
        stream = self._processes[1].stdout
        assert stream is not None
        if await asyncio.wait_for(stream.readline(), PATIENCE_S) != b"joined\n":
            raise RuntimeError((self._folder / "players.log").read_text()[-2000:])

    def memory(self) -> int:
        return psutil.Process(self._processes[0].pid).memory_info().rss

    def messages(self) -> int:
        return messages(f"http://127.0.0.1:{self._watched}")

    async def stop(self) -> None:
        for process in reversed(self._processes):
            if process.returncode is None:
                process.terminate()
                await process.wait()


async def _run(argv: Any, log: Path, *, listen: bool = False) -> asyncio.subprocess.Process:
    with log.open("ab") as file:
        return await asyncio.create_subprocess_exec(
            *argv, stdout=asyncio.subprocess.PIPE if listen else file, stderr=file
        )


async def _answers(program: Program) -> None:
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(program.answers):  # noqa: ASYNC110 - another process's start is no event
            await asyncio.sleep(0.05)


def messages(monitoring: str) -> int:
    """What a nats-server has taken and given since its start."""
    with urllib.request.urlopen(f"{monitoring}/varz", timeout=10) as answer:  # noqa: S310 - loopback
        told = json.load(answer)
    return int(told["in_msgs"]) + int(told["out_msgs"])


def memory_of(hub: EmbeddedHub) -> dict[str, int]:
    """Resident MiB by process of the hub."""
    pids = hub.supervisor.pids()
    return {name: psutil.Process(pids[name]).memory_info().rss >> 20 for name in SERVICES if name in pids}


async def measure(given: argparse.Namespace, folder: Path, homes: Path) -> dict[str, Any]:
    """Join all, run the rounds, and say what it took."""
    import hanse

    shares = [given.participants // given.leaves + (i < given.participants % given.leaves) for i in range(given.leaves)]
    async with EmbeddedHub(folder / "hub", leaves=True) as hub:
        empty = memory_of(hub)
        client = hanse.connect(hub.url, api_key=hub.api_key, patience=60.0)
        project = await asyncio.to_thread(client.projects.create, "crowd", schema=SCHEMA)
        leaves = [Leaf(index, folder, hub, count, homes) for index, count in enumerate(shares)]
        begun = time.monotonic()
        try:
            await asyncio.gather(*(leaf.start() for leaf in leaves))
            await asyncio.gather(*(leaf.joined() for leaf in leaves))
            joining = time.monotonic() - begun
            tell(f"{given.participants} participants joined in {joining:.0f} s; hub, MiB: {memory_of(hub)}")
            cohort = max(2, round(given.fraction * given.participants))
            job = {
                "rounds": given.rounds,
                "participants": {
                    "minimum": cohort, "fraction": given.fraction, "quorum": 0.9, "grace": 5.0, "deadline": 300,
                    "patience": 300,
                },
                "model": {"name": "logistic"},
                "evaluate": {"every": 0},
            }  # fmt: skip
            before = count_all(hub, leaves)
            began = time.monotonic()
            run = await asyncio.to_thread(project.run, job)
            ends, peak = await asyncio.to_thread(watch, run, hub)
            if run.state != "completed":
                raise RuntimeError(f"the run ended {run.state}: {run.view.reason}")
            seconds = [later - earlier for earlier, later in itertools.pairwise(ends)] or [ends[0] - began]
            return {
                "participants": given.participants, "leaves": given.leaves, "cohort": cohort,
                "rounds": given.rounds, "join_seconds": round(joining, 1),
                "round_seconds_p50": round(statistics.median(seconds), 2), "round_seconds_max": round(max(seconds), 2),
                "messages_per_second": round((count_all(hub, leaves) - before) / (ends[-1] - began)),
                "hub_mib_empty": empty, "hub_mib_peak": peak,
                "leaf_nats_mib": max(leaf.memory() for leaf in leaves) >> 20,
                "processors": psutil.cpu_count(), "load": round(psutil.getloadavg()[0], 1),
            }  # fmt: skip
        finally:
            await asyncio.gather(*(leaf.stop() for leaf in leaves))
            client.close()


def count_all(hub: EmbeddedHub, leaves: list[Leaf]) -> int:
    return sum(map(messages, hub.monitoring)) + sum(leaf.messages() for leaf in leaves)


def watch(run: Any, hub: EmbeddedHub) -> tuple[list[float], dict[str, int]]:
    """The ends of the rounds, and the most memory seen at them."""
    ends: list[float] = []
    peak = memory_of(hub)
    for event in run.watch():
        if event.kind == "round-finished":
            ends.append(time.monotonic())
            now = memory_of(hub)
            peak = {name: max(peak[name], now.get(name, 0)) for name in peak}
            tell(f"round {len(ends)}; hub, MiB: {now}")
    return ends, peak


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    given = arguments()
    if given.play is not None:
        asyncio.run(play(Crowd.read(given.play)))
        return
    # Homes are many small files that are forced to the disk; sites' disks are not what is measured.
    shm = Path("/dev/shm")  # noqa: S108 - made anew there
    homes = Path(tempfile.mkdtemp(prefix="hanse-scale-", dir=shm if shm.is_dir() else None))
    try:
        with tempfile.TemporaryDirectory(prefix="hanse-scale-") as folder:
            found = asyncio.run(measure(given, Path(folder), homes))
    finally:
        shutil.rmtree(homes, ignore_errors=True)
    if given.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:22} {value}")


if __name__ == "__main__":
    main()
