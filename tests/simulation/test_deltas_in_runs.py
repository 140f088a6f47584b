"""Sites that hold an older model are sent the way to the new one: the same bits in fewer bytes, whoever was away, lost
or damaged what it had, or dies meanwhile; and a hub that names a false way is found out."""

from __future__ import annotations

import shutil
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hanse_coordinator.links import LinkServer
from hanse_coordinator.records import RunRecord
from hanse_datapod.worker.port import WorkOutcome, WorkRequest
from hanse_fabric.clock import Clock
from hanse_fabric.doors.byte_ledger import Passed
from hanse_fabric.messages import LinkRequest, Task, TaskKind
from hanse_fabric.subjects import TASK
from hanse_fabric.tensors.file import read_tensors
from hanse_learning.codecs.deltas import write_delta
from hanse_reduction import encode_model
from simulation.league import League
from simulation.played import Played, play
from simulation.stories import outcomes_when_killed
from simulation.trainer import Trainer, write

SIZE = 480_000
"""Bytes of the model, which is too large to be in a message."""
JOB: dict[str, Any] = {
    "rounds": 5, "model": {"name": "linear"}, "checkpoint_every": 0, "seed": 3,
    "participants": {"minimum": 2, "deadline": 600.0},
}  # fmt: skip
WAY = [{"name": "delta"}, {"name": "zstd"}]
DELTA = {"codec": {"down": WAY}}


class Wide(Trainer):
    """With a larger model, which moves by a thousandth of its size."""

    def __init__(self, clock: Clock, site: int) -> None:
        super().__init__(clock, site, seconds=0.5)

    def _work(self, request: WorkRequest) -> WorkOutcome:
        if request.kind is TaskKind.INITIALIZE:
            write(request, np.random.default_rng(request.seed).normal(size=SIZE // 4))
            return WorkOutcome(request.output, 0, {}, self._seconds)
        assert request.model is not None
        weight = read_tensors(request.model)[1]["weight"]
        if request.kind is TaskKind.EVALUATE:
            return WorkOutcome(None, 1, {"loss": float(np.mean(weight**2))}, self._seconds)
        draw = np.random.default_rng(request.seed)
        write(request, (weight * 1e-3 * draw.normal(size=len(weight))).astype(np.float32))
        return WorkOutcome(request.output, 1, {"loss": 0.0}, self._seconds)


@dataclass
class Given:
    """Bytes that links to the store were given for: by site, those of each step."""

    down: dict[str, list[tuple[str, int]]] = field(default_factory=lambda: defaultdict(list))

    def whole(self, site: str) -> list[str]:
        """Steps for which a site was given the whole model."""
        return [step for step, size in self.down[site] if size >= SIZE]

    def all(self) -> int:
        return sum(size for each in self.down.values() for _, size in each)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Given:
    found, count = Given(), LinkServer._count

    def counted(self: LinkServer, request: LinkRequest, passed: Passed) -> None:
        if passed.store_down:
            found.down[request.participant].append((request.step, passed.store_down))
        count(self, request, passed)

    monkeypatch.setattr(LinkServer, "_count", counted)
    return found


def of(folder: Path, **more: Any) -> Played:
    job = JOB | DELTA | more.pop("job", {})
    return play(folder, job, sites=more.pop("sites", ["a", "b", "c"]), worker=Wide, **more)


def plain_digest(folder: Path, **more: Any) -> str:
    return play(folder / "plain", JOB | more, sites=["a", "b", "c"], worker=Wide).versions[-1].digest


def test_after_the_first_model_only_the_way_to_the_next_is_sent_and_the_model_has_the_same_bits(
    tmp_path: Path, given: Given
) -> None:
    played = of(tmp_path)
    assert all(given.whole(site) == ["r1-train"] for site in "abc")
    assert [step for step, _ in given.down["a"]] == ["r1-train", *(f"r{number}-evaluate" for number in range(1, 6))]
    # What the events say is what went by the lines.
    told = [event.data["bytes"]["down"] for event in played.made.events("round-finished")]
    assert sum(told) == given.all()
    assert told[1] < 0.7 * 3 * SIZE
    assert not list((tmp_path / "a" / "deltas").glob("*"))
    before = given.all()
    assert played.versions[-1].digest == plain_digest(tmp_path)
    assert before < 0.75 * (given.all() - before)


def test_sites_that_were_away_lost_or_damaged_what_they_had_fetch_the_whole_model_and_change_nothing(
    tmp_path: Path, given: Given
) -> None:
    async def trouble(made: League) -> None:
        await made.until(lambda record: record.round == 1)
        await made.restart("a")  # it was killed, and has its files
        await made.until(lambda record: record.round == 2)
        await made.processes["b"].crash()
        shutil.rmtree(made.folder / "b" / "cache")
        await made.clock.sleep(1.0)
        made.processes["b"].start(made.group)
        await made.until(lambda record: record.round == 3)
        await made.processes["c"].crash()
        for path in (made.folder / "c" / "cache").iterdir():
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
        await made.clock.sleep(1.0)
        made.processes["c"].start(made.group)

    played = of(tmp_path, trouble=trouble)
    assert given.whole("a") == ["r1-train"]
    assert given.whole("b")[1:]
    assert given.whole("c")[1:]
    assert len(given.down["a"]) == 6
    for home in "abc":
        cache = tmp_path / home / "cache"
        assert len(list(cache.iterdir())) <= 3  # two, and a file to be written over
        assert cache.stat().st_mode & 0o077 == 0
    assert played.versions[-1].digest == plain_digest(tmp_path)


def test_a_site_that_sat_rounds_out_goes_several_ways_one_after_another(tmp_path: Path, given: Given) -> None:
    job = {"rounds": 6, "participants": JOB["participants"] | {"fraction": 0.5}}
    sites = ["a", "b", "c", "d", "e"]
    played = play(tmp_path, JOB | DELTA | job, sites=sites, worker=Wide)
    steps = [[step for step, _ in given.down[site]] for site in sites]
    assert any(each.count(step) > 1 for each in steps for step in each)
    plain = play(tmp_path / "plain", JOB | job, sites=sites, worker=Wide)
    assert played.versions[-1].digest == plain.versions[-1].digest


@pytest.mark.parametrize("form", [[], [{"name": "float16"}]], ids=["masked", "float16"])
def test_what_is_masked_or_rounded_is_the_same_with_ways_and_without(
    tmp_path: Path, given: Given, form: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    more = {"rounds": 3} | ({} if form else {"secure_aggregation": {"mode": "pairwise"}})
    if form:
        monkeypatch.setattr(Wide, "_work", _of_halves)
    digest = of(tmp_path, job=more | {"codec": {"down": [*form, *WAY]}}).versions[-1].digest
    ways = given.all()
    other = more | ({"codec": {"down": form}} if form else {})
    assert digest == plain_digest(tmp_path, **other)
    assert ways < 0.8 * (given.all() - ways)


_plain_work = Wide._work


def _of_halves(self: Wide, request: WorkRequest) -> WorkOutcome:
    """As the worker does, which reads a model in the form that the task names."""
    from hanse_fabric.tensors.file import write_tensors
    from hanse_learning.codecs.at_site import read_model

    if request.model is not None and (request.config.get("codec") or {}).get("down"):
        assert [each["name"] for each in request.config["codec"]["down"]] == ["float16"]
        layout, arrays = read_model(request.model, request.config)
        decoded = request.output.with_name("decoded")
        write_tensors(decoded, layout, arrays)
        request = WorkRequest(**{**{name: getattr(request, name) for name in request.__slots__}, "model": decoded})
    return _plain_work(self, request)


def test_a_hub_that_names_a_false_way_is_found_out_and_the_model_is_the_one_that_was_asked(
    tmp_path: Path, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The delta makes another model, which its head gives out for this one."""

    def lying(file: Any, runs: Any, new: Any, old: Any, codec: Any, **names: str) -> None:
        write_delta(file, runs, lambda size: bytes(255 - byte for byte in new(size)), old, codec, **names)

    monkeypatch.setattr(encode_model, "write_delta", lying)
    played = of(tmp_path, job={"rounds": 3})
    monkeypatch.undo()
    for site in "abc":
        evaluated = [size for step, size in given.down[site] if step == "r2-evaluate"]
        assert len(evaluated) == 2
    digest = plain_digest(tmp_path, rounds=3)
    assert played.versions[-1].digest == digest


def test_whoever_dies_the_run_ends_in_the_same_model(tmp_path: Path) -> None:
    def told(made: League, record: RunRecord) -> object:
        ways = {
            delta.makes
            for task in made.published(TASK, Task) if task.round == 2
            for delta in task.deltas or ()
        }  # fmt: skip
        return record.model_digest, ways

    for process in ("coordinator-0", "a"):
        found = outcomes_when_killed(
            tmp_path / process, ["a", "b"], JOB | DELTA | {"rounds": 2}, every=13, process=process, told=told,
            worker=Wide,
        )  # fmt: skip
        assert len(found) > 1
        assert all(each == found[0] for each in found)
        assert found[0][1]  # type: ignore[index]
