"""Many participants over leaf nodes: `make bench-scale` (ARGS='--participants 10000 --json').

A hub of real services; nats-servers as leaf nodes of its bus, each of a region of sites, with TLS before and behind it;
participants that are played by one process for each leaf. Each enrols with a token of its own through the hub's API,
has keys, credentials of its region and a TLS connection of its own, shows signs of life once a minute, and answers its
tasks with an update of the model. When all are there and have rested for a minute one leaf node is killed, and its
sites go to others of their region; then one of the hub's servers, and all ask again; then come the rounds. What is
measured is the hub and the bus, not training.
`docs/scale.md` explains the figures; `scale_plot.py` draws them.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from scale_figures import Usage, consumers, kib, messages, most, told
from scale_losses import PATIENCE_S, lose_a_leaf, lose_a_server, raise_open_files
from scale_sites import ALIVE, PHASES, Crowd, play
from scratch import scratch

from hanse.embedded.hub import EmbeddedHub
from hanse_fabric.bus.authority import BusAuthority
from hanse_fabric.durable import write_durably
from hanse_fabric.subjects import TASK
from hanse_operations.bus.server import LeafRemote, ServerTls
from hanse_operations.secrets.certificates import issue, make_ca
from hanse_operations.servers.nats import nats_program
from hanse_operations.servers.program import Program, free_ports

SCHEMA = {"kind": "array", "shape": [8], "task": "classification", "classes": 3}
PROJECT, TASKS = "crowd", TASK.stream.name if TASK.stream else ""
SERVICES = ("coordinator", "aggregator", "model-registry", "compensator", "nats-server", "object-store")
REST_S = 60.0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--participants", type=int, default=400)
    parser.add_argument("--leaves", type=int, default=4)
    parser.add_argument(
        "--regions", type=int, default=2, help="over which the leaf nodes are divided; at most half of them"
    )
    parser.add_argument("--bus-servers", type=int, default=3, choices=(1, 3), help="of the hub; 3 copy all streams")
    parser.add_argument("--fraction", type=float, default=0.1, help="share of the participants that a round samples")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--play", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


class Leaf:
    """A leaf node, and the process that plays the participants at it."""

    def __init__(
        self, index: int, folder: Path, hub: EmbeddedHub, region: str, tls: ServerTls, count: int, homes: Path
    ) -> None:
        self.index, self._folder, self._hub = index, folder / f"leaf-{index}", hub
        self.region, self._tls = region, tls
        self._count, self._homes = count, homes
        self.port, watched = free_ports(2)
        self.monitoring = f"http://127.0.0.1:{watched}"
        self._watched_port = watched
        self._processes: list[asyncio.subprocess.Process] = []

    async def serve(self) -> asyncio.subprocess.Process:
        """Start the leaf node, by its region's own key."""
        authority = BusAuthority(self._hub.state.authority)
        self._folder.mkdir(exist_ok=True)
        name, own, system = f"leaf-{self.index}", self._folder / "leaf.creds", self._folder / "leaf-system.creds"
        for path, text in zip((own, system), authority.leaf_credentials(self.region, name), strict=True):
            write_durably(path, text)
        remote = LeafRemote(
            self._hub.leaf_urls, own, region=self.region, ca=self._tls.ca, system_credentials=system, name=name
        )  # fmt: skip
        shown = replace(self._tls, ca=None)
        program = nats_program(
            self._folder, authority, port=self.port, leaf=remote, tls=shown, monitoring_port=self._watched_port
        )  # fmt: skip
        process = await _run(program.argv, self._folder / "log")
        await _answers(program)
        return process

    async def start(self, addresses: str) -> None:
        """Start the leaf node, and have its participants join. `addresses`: those of its region's leaf nodes."""
        self._processes.append(await self.serve())
        crowd = Crowd(
            self._hub.url, self._hub.api_key, PROJECT, addresses, self.region, str(self._tls.ca), self.index,
            self._count, self._homes / str(self.index),
        )  # fmt: skip
        told = self._folder / "crowd.json"
        told.write_text(crowd.text())
        told.chmod(0o600)
        self._processes.append(
            await _run((sys.executable, __file__, "--play", str(told)), self._folder / "players.log", listen=True)
        )

    async def reached(self, phase: str) -> None:
        """Wait until all its participants have come so far."""
        stream = self._processes[1].stdout
        assert stream is not None
        if await asyncio.wait_for(stream.readline(), PATIENCE_S) != f"{phase}\n".encode():
            raise RuntimeError((self._folder / "players.log").read_text()[-2000:])

    async def go_on(self) -> None:
        """Have them do what is next, which others have waited with."""
        stream = self._processes[1].stdin
        assert stream is not None
        stream.write(b"\n")
        await stream.drain()

    async def connecting(self) -> dict[str, Any]:
        """Of its players, since they were asked last: attempts to connect by the second, and how many came `back`; and
        how many are `away` now."""
        await self.go_on()
        stream = self._processes[1].stdout
        assert stream is not None
        found: dict[str, Any] = json.loads(await asyncio.wait_for(stream.readline(), PATIENCE_S))
        return found

    async def alive(self) -> None:
        """Return when each of its players had an answer."""
        stdin, stdout = self._processes[1].stdin, self._processes[1].stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{ALIVE}\n".encode())
        await stdin.drain()
        await asyncio.wait_for(stdout.readline(), PATIENCE_S)

    async def kill(self) -> None:
        """As when its machine is lost."""
        self._processes[0].kill()
        await self._processes[0].wait()

    async def start_again(self) -> None:
        self._processes[0] = await self.serve()

    def pids(self) -> dict[str, int]:
        return {"leaf-nats-server": self._processes[0].pid, "players": self._processes[1].pid}

    async def stop(self) -> None:
        for process in reversed(self._processes):
            if process.returncode is None:
                process.terminate()
                await process.wait()


async def _run(argv: Any, log: Path, *, listen: bool = False) -> asyncio.subprocess.Process:
    with log.open("ab") as file:
        return await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE if listen else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE if listen else file,
            stderr=file,
        )


async def _answers(program: Program) -> None:
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(program.answers):  # noqa: ASYNC110 - another process's start is no event
            await asyncio.sleep(0.05)


class Watched:
    """The hub's and the leaves' processes."""

    def __init__(self, hub: EmbeddedHub, leaves: list[Leaf]) -> None:
        self._hub, self.leaves = hub, leaves

    def hub(self) -> Usage:
        pids = self._hub.supervisor.pids()
        return Usage.of({name: pid for name, pid in pids.items() if name.startswith(SERVICES)})

    def bus_servers(self) -> dict[str, tuple[int, str]]:
        """Process and monitoring of the hub's NATS servers, by name."""
        pids = self._hub.supervisor.pids()
        names = [name for name in sorted(pids) if name.startswith("nats-server")]
        return {name: (pids[name], page) for name, page in zip(names, self._hub.monitoring, strict=True)}

    def leaf(self) -> Usage:
        """The one whose nats-server takes most memory."""
        return max((Usage.of(leaf.pids()) for leaf in self.leaves), key=lambda usage: usage.mib["leaf-nats-server"])

    def messages(self) -> int:
        return sum(map(messages, [*self._hub.monitoring, *(leaf.monitoring for leaf in self.leaves)]))

    def consumers(self) -> int:
        """Of the stream of tasks: sites have none."""
        return sum(consumers(page, TASKS) for page in self._hub.monitoring)

    def connections(self) -> int:
        return sum(int(told(leaf.monitoring, "varz")["connections"]) for leaf in self.leaves)

    def disk(self) -> dict[str, int]:
        root = self._hub.state.root
        return {"bus": kib(root / "nats"), "store": kib(root / "store")}


async def measure(given: argparse.Namespace, folder: Path, homes: Path) -> dict[str, Any]:
    """Enrol all, connect all, run the rounds, and say what it took."""
    import hanse

    if not 0 < 2 * given.regions <= given.leaves:
        raise SystemExit(
            f"--regions: {given.regions} is not at least 1 and at most half of the {given.leaves} leaf nodes"
        )
    raise_open_files(given.participants, given.leaves, given.regions)
    regions, tls = [f"r{index}" for index in range(given.regions)], certificates(folder)
    shares = [given.participants // given.leaves + (i < given.participants % given.leaves) for i in range(given.leaves)]
    async with EmbeddedHub(
        folder / "hub", bus_servers=given.bus_servers, leaves=True, leaf_tls=replace(tls, ca=None), regions=regions
    ) as hub:
        leaves = [
            Leaf(index, folder, hub, regions[index % len(regions)], tls, count, homes)
            for index, count in enumerate(shares)
        ]
        watched = Watched(hub, leaves)
        client = hanse.connect(hub.url, api_key=hub.api_key, patience=60.0)
        project = await asyncio.to_thread(client.projects.create, PROJECT, schema=SCHEMA)
        try:
            for region in regions:
                own = [leaf for leaf in leaves if leaf.region == region]
                addresses = ",".join(f"tls://127.0.0.1:{leaf.port}" for leaf in own)
                await asyncio.gather(*(leaf.start(addresses) for leaf in own))
            joined = await join(given, watched) | await rest(watched)
            joined |= await lose_a_leaf(watched, tell) | await lose_a_server(watched, tell)
            run = await rounds(given, watched, project)
        finally:
            await asyncio.gather(*(leaf.stop() for leaf in leaves))
            client.close()
    machine = {"processors": psutil.cpu_count(), "load": round(psutil.getloadavg()[0], 1)}
    shape = {name: getattr(given, name) for name in ("participants", "leaves", "regions", "bus_servers")}
    return shape | joined | run | machine


async def join(given: argparse.Namespace, watched: Watched) -> dict[str, Any]:
    """All enrol; then all connect and follow their tasks at once, as after an outage."""
    empty, seconds, disk = watched.hub(), {}, {"empty": await asyncio.to_thread(watched.disk)}
    looks = [empty]
    for phase in PHASES:
        begun = time.monotonic()
        await asyncio.gather(*(leaf.go_on() for leaf in watched.leaves))
        await asyncio.gather(*(leaf.reached(phase) for leaf in watched.leaves))
        seconds[phase] = time.monotonic() - begun
        looks.append(watched.hub())
        disk[phase] = await asyncio.to_thread(watched.disk)
        tell(f"{given.participants} {phase} in {seconds[phase]:.0f} s; hub, MiB: {looks[-1].mib}")
    return {
        "enrol_seconds": round(seconds["enrolled"], 1), "join_seconds": round(seconds["joined"], 1),
        "connections": await asyncio.to_thread(watched.connections),
        "consumers": await asyncio.to_thread(watched.consumers),
        "hub_mib_empty": empty.mib, "hub_mib_joined": looks[-1].mib,
        "leaf_mib_joined": watched.leaf().mib,
        "hub_cpu_seconds_enrol": looks[1].since(looks[0]), "hub_cpu_seconds_join": looks[2].since(looks[1]),
        "disk_kib": disk,
    }  # fmt: skip


async def rest(watched: Watched) -> dict[str, Any]:
    """Processors that are busy with signs of life alone, each site's once a minute."""
    before = [watched.hub(), *(Usage.of(leaf.pids()) for leaf in watched.leaves)]
    await asyncio.sleep(REST_S)
    after = [watched.hub(), *(Usage.of(leaf.pids()) for leaf in watched.leaves)]
    hub, *leaves = (later.since(earlier) for later, earlier in zip(after, before, strict=True))
    spent = {"hub": sum(hub.values())} | {kind: sum(leaf[kind] for leaf in leaves) for kind in leaves[0]}
    return {"rest_processors": {name: round(seconds / REST_S, 3) for name, seconds in spent.items()}}


def certificates(folder: Path) -> ServerTls:
    """What all servers show, and its CA."""
    now = datetime.now(UTC)
    ca = make_ca("bench", now)
    pair = issue(ca, ["127.0.0.1"], now)
    for name, text in {"ca.crt": ca.cert, "tls.crt": pair.cert, "tls.key": pair.key}.items():
        write_durably(folder / name, text)
    return ServerTls(folder / "tls.crt", folder / "tls.key", folder / "ca.crt")


async def rounds(given: argparse.Namespace, watched: Watched, project: Any) -> dict[str, Any]:
    """A run; its rounds are from the end of one to the end of the next."""
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
    messages_before, before, began = watched.messages(), watched.hub(), time.monotonic()
    run = await asyncio.to_thread(project.run, job)
    ends, counted, peak = await asyncio.to_thread(watch, run, watched)
    if run.state != "completed":
        raise RuntimeError(f"the run ended {run.state}: {run.view.reason}")
    seconds = [later - earlier for earlier, later in itertools.pairwise(ends)] or [ends[0] - began]
    spent = watched.hub().since(before)
    return {
        "cohort": cohort, "counted": counted, "rounds": given.rounds,
        "round_seconds_p50": round(statistics.median(seconds), 2), "round_seconds_max": round(max(seconds), 2),
        "first_round_seconds": round(ends[0] - began, 2),
        "messages_per_second": round((watched.messages() - messages_before) / (ends[-1] - began)),
        "hub_mib_peak": peak, "leaf_mib_peak": watched.leaf().mib,
        "hub_cpu_seconds_round": {name: round(value / given.rounds, 3) for name, value in spent.items()},
        "disk_kib_end": await asyncio.to_thread(watched.disk),
    }  # fmt: skip


def watch(run: Any, watched: Watched) -> tuple[list[float], list[int], dict[str, int]]:
    """The ends of the rounds, how many participants' updates are in each, and the most memory seen at them."""
    ends: list[float] = []
    counted: list[int] = []
    peak = watched.hub().mib
    for event in run.watch():
        if event.kind == "round-finished":
            ends.append(time.monotonic())
            counted.append(len(event.data["participants"]))
            now = watched.hub().mib
            peak = most(peak, now)
            tell(f"round {len(ends)}: {counted[-1]} counted; hub, MiB: {now}")
    return ends, counted, peak


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    given = arguments()
    if given.play is not None:
        asyncio.run(play(Crowd.read(given.play)))
        return
    # Homes are many small files that are forced to the disk; sites' disks are not what is measured.
    shm = Path("/dev/shm")  # noqa: S108 - made anew there
    with scratch("scale-homes", within=shm if shm.is_dir() else None) as homes, scratch("scale") as folder:
        found = asyncio.run(measure(given, Path(folder), Path(homes)))
    if given.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:22} {value}")


if __name__ == "__main__":
    main()
