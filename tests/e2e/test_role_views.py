"""What each role has seen of a real masked run with noise, searched for what it must not have seen.

A tap with all rights records every message that is published, and the table of subjects says who may read which: so a
role's view here is all that its credentials could get it, not what its program happened to ask for.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from e2e.deployed import DeployedHub, deployed
from hanse_datapod.masking import sealed_seed
from hanse_fabric.messages import Result, Task, TaskKind
from hanse_fabric.subjects import RESULT, SUBJECTS, TASK, UPDATE, Role, Verb
from hanse_fabric.tensors.file import decode_tensors
from hanse_privacy.noise import distributed, exchange, polya, shuffled
from hanse_privacy.noise.shuffled import PairedNoise
from light_sites import TAIL, Fate, LightSite, update_of
from overhearing import with_all_rights
from views import Secret, find_secret

SITES, ROUNDS = 4, 2
READS = {Verb.FOLLOW, Verb.LAST, Verb.WORK, Verb.SERVE}
NOISE = {"placement": "distributed", "mechanism": "discrete_laplace", "noise_multiplier": 0.5}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedHub]:
    """One for all runs, each of a project of its own and with a tap of its own; no other file's sites are at it."""
    with deployed(tmp_path_factory.mktemp("views") / "hub") as started:
        yield started


@dataclass
class Seen:
    """All messages of a run, and the sites' secrets."""

    messages: list[tuple[str, bytes]] = field(default_factory=list)
    seeds: list[bytes] = field(default_factory=list)
    noise: list[Secret] = field(default_factory=list)

    def by(self, role: Role, participant: str = "") -> list[bytes]:
        """All that a role's credentials can read of it."""
        rows = [row for row in SUBJECTS if row.rights.get(role, frozenset()) & READS]
        names = {"participant": participant} if participant else {}
        patterns = [re.compile(re.escape(row.wildcard(**names)).replace(r"\*", "[^.]+")) for row in rows]
        return [data for subject, data in self.messages if any(pattern.fullmatch(subject) for pattern in patterns)]

    def fraction(self) -> int:
        """Of the ring that the updates were in."""
        pattern = re.compile(re.escape(TASK.wildcard()).replace(r"\*", "[^.]+"))
        tasks = [Task.decode(data) for subject, data in self.messages if pattern.fullmatch(subject)]
        [found] = {task.masking.ring.default.fraction for task in tasks if task.masking and task.kind is TaskKind.TRAIN}
        return found

    def updates(self) -> dict[str, list[bytes]]:
        """The files (masked updates and tallies) by participant."""
        found: dict[str, list[bytes]] = {}
        for subject, data in self.messages:
            if subject.startswith(UPDATE.pattern.partition("{")[0]):
                found.setdefault(UPDATE.parse(subject)["participant"], []).append(data)
        return found

    def results(self) -> list[Result]:
        pattern = re.compile(re.escape(RESULT.wildcard()).replace(r"\*", "[^.]+"))
        return [Result.decode(data) for subject, data in self.messages if pattern.fullmatch(subject)]

    def secrets(self, *, but: int | None = None) -> dict[str, Secret]:
        """Plain updates as floats and as ring elements, mask seeds, drawn noise; but those of one site."""
        fraction = self.fraction()
        found: dict[str, Secret] = {f"seed {n}": seed for n, seed in enumerate(self.seeds)}
        found |= {f"noise {n}": noise for n, noise in enumerate(self.noise)} if but is None else {}
        for index in range(SITES):
            for round_number in range(1, ROUNDS + 1):
                if index != but:
                    plain = update_of(index, SITES, round_number)[SITES:]
                    found[f"update {index} of round {round_number}"] = plain
                    for name, dtype in (("u32", np.uint32), ("u64", np.uint64)):
                        found[f"{name} of {index} of round {round_number}"] = ring_of(plain, fraction, dtype)
        return found


def ring_of(values: np.ndarray, fraction: int, dtype: type) -> np.ndarray:
    return np.rint(values * 2.0**fraction).astype(np.int64).astype(np.uint64).astype(dtype)


@asynccontextmanager
async def tapped(folder: Path, seen: Seen) -> AsyncIterator[None]:
    """Record all that is published on the bus, with a credential that only a test has."""
    port = json.loads((folder / "hub" / "ports.json").read_text())["bus"]
    client = await with_all_rights(f"nats://127.0.0.1:{port}", folder / "hub" / "bus-authority")

    async def record(message: Any) -> None:
        seen.messages.append((message.subject, message.data))

    try:
        for subject in ("hanse.>", "$KV.>"):
            await client.subscribe(subject, cb=record)
        await client.flush()
        yield
        await client.flush()
    finally:
        await client.close()


async def played(hub: DeployedHub, folder: Path, monkeypatch: pytest.MonkeyPatch, mode: str, noise: str | None) -> Seen:
    """A run of four sites, with everything that was said."""
    seen = Seen()

    def remembered(count: int) -> bytes:
        seen.seeds.append(secrets.token_bytes(count))
        return seen.seeds[-1]

    def drawn(draw: Any) -> Any:
        def draw_and_remember(*arguments: Any) -> Any:
            seen.noise.append(draw(*arguments))
            return seen.noise[-1]

        return draw_and_remember

    monkeypatch.setattr(sealed_seed, "secrets", SimpleNamespace(token_bytes=remembered))
    monkeypatch.setattr(PairedNoise, "draw", drawn(PairedNoise.draw))
    # Drawn noise, and the differences that sites seal for the compensator, or for each other.
    polya_difference, pack = drawn(polya.polya_difference), drawn(shuffled.pack)
    for module, name, replaced in (
        (distributed, "polya_difference", polya_difference), (shuffled, "polya_difference", polya_difference),
        (exchange, "pack", pack), (shuffled, "pack", pack),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, replaced)
    async with tapped(hub.folder.parent, seen), asyncio.TaskGroup() as group:
        with await asyncio.to_thread(hub.client) as client:
            name = f"views-{noise or mode}"
            project = await asyncio.to_thread(client.projects.create, name, schema={"kind": "open"})
            sites = [
                LightSite(index, SITES, folder / f"{index}", hub.hub.compensator_key, lambda *_: Fate.ANSWERS, {}, int)
                for index in range(SITES)
            ]
            at_work = [
                group.create_task(site.run(hub.hub.url, await asyncio.to_thread(project.invite, site.name)))
                for site in sites
            ]
            job = {
                "rounds": ROUNDS,
                "weighting": "uniform",
                "model": {"name": "logistic"},
                "initial_model": await asyncio.to_thread(
                    project.upload_model, {"weight": np.zeros(SITES + TAIL, np.float32)}
                ),
                "participants": {"minimum": SITES, "deadline": 60},
                "secure_aggregation": {"mode": mode},
            } | ({} if noise is None else {"privacy": NOISE | {"noise": noise}})
            run = await asyncio.to_thread(project.run, job)
            await asyncio.to_thread(run.wait)
            assert run.state == "completed", f"{run.state}: {run.view.reason}"
        for task in at_work:
            task.cancel()
    return seen


@pytest.mark.parametrize("noise", ["oblivious", "oblivious-shuffled", "distributed-gamma"])
async def test_no_role_has_seen_a_plain_update_a_seed_or_noise(
    hub: DeployedHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noise: str
) -> None:
    seen = await played(hub, tmp_path, monkeypatch, "compensator", noise)
    results = [result for result in seen.results() if result.seed is not None]
    assert len(results) == len(seen.seeds) == 2 * SITES * ROUNDS  # training and evaluation
    sealed = {"oblivious": SITES - 1, "oblivious-shuffled": 1, "distributed-gamma": 0}[noise]
    assert sum(isinstance(secret, bytes) for secret in seen.noise) == sealed * SITES * ROUNDS
    assert sum(isinstance(secret, np.ndarray) for secret in seen.noise) >= SITES * ROUNDS
    for role in (Role.COORDINATOR, Role.AGGREGATOR, Role.COMPENSATOR, Role.MODEL_REGISTRY):
        assert find_secret(seen.by(role), seen.secrets()) == [], role
    assert find_secret(seen.by(Role.PARTICIPANT, "site-000"), seen.secrets(but=0)) == []
    check_parts(seen, results)
    check_differences(seen)


def check_parts(seen: Seen, results: list[Result]) -> None:
    """Who holds which half: masked files are the aggregator's, sealed seeds the coordinator's and compensator's."""
    sealed: dict[str, Secret] = {
        result.participant + result.step: result.seed.sealed for result in results if result.seed
    }
    files: dict[str, Secret] = {
        f"{name} {number}": data[decode_tensors(data)[0].data_start :]
        for name, sent in seen.updates().items()
        for number, data in enumerate(sent)
    }
    assert len(files) == 3 * SITES * ROUNDS  # an update and two tallies
    for role, has_sealed, has_files in (
        (Role.COORDINATOR, True, False),
        (Role.COMPENSATOR, True, False),
        (Role.AGGREGATOR, False, True),
        (Role.MODEL_REGISTRY, False, False),
    ):
        assert bool(find_secret(seen.by(role), sealed)) is has_sealed, role
        assert bool(find_secret(seen.by(role), files)) is has_files, role


def check_differences(seen: Seen) -> None:
    """Two masked updates of one round, or of one site, differ by nothing that could be told from noise."""
    vectors = [
        next(iter(decode_tensors(data)[1].values())).reshape(-1)
        for sent in seen.updates().values()
        for data in sent
        if len(data) > 4 * TAIL
    ]
    assert len(vectors) == SITES * ROUNDS
    for one in range(len(vectors)):
        for other in range(one):
            difference = (vectors[one] - vectors[other]).astype(np.float64)
            spread = difference / 2.0 ** (8 * vectors[one].itemsize)
            assert 0.2 < spread.std() < 0.4  # uniform: 0.289


async def test_the_search_finds_every_update_of_a_run_without_masks(
    hub: DeployedHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = await played(hub, tmp_path, monkeypatch, "ring", None)
    found = {finding.secret for finding in find_secret(seen.by(Role.AGGREGATOR), seen.secrets())}
    assert len(found) == SITES * ROUNDS
    assert find_secret(seen.by(Role.COORDINATOR), seen.secrets()) == []
