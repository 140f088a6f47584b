"""The agent's part of pairwise aggregation, among peers that the test plays: started anew before every task."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import numpy as np
import pytest

from hanse_datapod.home.folders import PAIRWISE
from hanse_datapod.masking.binding import asked_of
from hanse_datapod.masking.plan import smallest_sum
from hanse_fabric.messages import MaskingMode, Outcome, Result, Task, TaskKind
from hanse_fabric.subjects import UPDATE
from hanse_fabric.tensors.file import decode_tensors
from hanse_privacy.pairwise.coordination import ask_unmask, order_masks, read_adverts, share_request
from hanse_privacy.pairwise.messages import ShareRequest
from hanse_privacy.pairwise.recovering import recover
from hanse_privacy.pairwise.streams import residual_masks
from pairwise_sites import Rehearsal
from unit.datapod.masked_actors import PLAN, TensorWorker, masked_task, policy
from unit.datapod.site_actors import Site

RUN, SESSION = "a" * 12, "r1-train"
NAMES = ("east", "north", "south")
WEIGHT = np.linspace(-1, 1, 60, dtype=np.float32)


class Pairs:
    """North, a real agent, and its two peers."""

    def __init__(self, folder: Path, **rules: object) -> None:
        worker = TensorWorker({"weight": WEIGHT})
        worker.examples = 10
        self.north = Site(folder / "north", worker=worker, policy=policy(**rules))
        self.peers = Rehearsal(folder / "peers", NAMES, project="triage", run=RUN, pinned=False)
        self.identities = self.peers.identities | {"north": self.north.identity.signing_key.public_bytes}
        self._given = 0
        # What is asked is the same for all, whatever order each is told to mask by.
        self.peers.asked = asked_of(self.task(SESSION, TaskKind.TRAIN, None))

    async def asks(self, kind: TaskKind, payload: bytes | None = None) -> Result:
        """North's answer to a task, by a process that has just been started."""
        step = SESSION if kind is TaskKind.TRAIN else f"{SESSION}-{kind.value}"
        task = self.task(step, kind, payload)
        self._given += 1
        await self.north.start()
        await self.north.give(task)
        found = (await self.north.results(self._given))[-1][0]
        await self.north.stop()
        return found

    def task(self, step: str, kind: TaskKind, payload: bytes | None) -> Task:
        encoded = None if payload is None else base64.b64encode(payload)
        return masked_task(step, mode=MaskingMode.PAIRWISE, session=SESSION, kind=kind, payload=encoded)

    async def request(self) -> ShareRequest:
        adverts = {name: self.peers.sites[name].advertise(RUN) for name in ("east", "south")}
        adverts["north"] = done(await self.asks(TaskKind.ADVERTISE))
        read = read_adverts("triage", RUN, self.identities, adverts)
        assert read.refused == {}
        return share_request(
            "triage", RUN, SESSION, read.members, threshold=None, minimum=3, work=self.peers.asked.work
        )


def done(result: Result) -> bytes:
    assert result.outcome is Outcome.DONE, result.reason
    assert result.payload is not None
    return result.payload


async def test_an_agent_restarted_before_each_step_takes_part_in_a_whole_session(tmp_path: Path) -> None:
    pairs = Pairs(tmp_path)
    request = await pairs.request()
    shares = {name: pairs.peers.sites[name].share(RUN, request.encode(), session=SESSION) for name in ("east", "south")}
    shares["north"] = done(await pairs.asks(TaskKind.SHARE, request.encode()))
    orders = order_masks(request, shares)
    notes = pairs.peers.mask(request, orders, ["east", "south"])
    trained = await pairs.asks(TaskKind.TRAIN, orders.payloads["north"])
    agreements = {name: note.payload for name, note in notes.items()} | {"north": done(trained)}
    assert (trained.examples, trained.metrics, trained.seed) == (0, {}, None)

    asked = ask_unmask(request, orders.members, agreements)
    assert asked.refused == {}
    revealed = {name: pairs.peers.sites[name].unmask(RUN, asked.payload, session=SESSION) for name in ("east", "south")}
    revealed["north"] = done(await pairs.asks(TaskKind.UNMASK, asked.payload))
    recovered = recover(request, orders.answers, asked.survivors, revealed, asked.asked)
    assert recovered.recovery is not None

    total = await masked_weight(pairs, trained)
    for note in notes.values():
        note.masks.apply(total, 0)
    residual_masks(recovered.recovery).apply(total, 0)
    expected = np.rint(WEIGHT.astype("f8") * 10 / PLAN.largest_weight * 2.0**30).astype("i8").astype("u8")
    assert np.array_equal(total, expected)
    assert pairs.north.worker.requests[0].kind is TaskKind.TRAIN
    assert len(pairs.north.worker.requests) == 1


async def masked_weight(pairs: Pairs, trained: Result) -> np.ndarray:
    """The masked elements, which look like nothing."""
    assert trained.update is not None
    subject = UPDATE.of(project="triage", run=RUN, participant="north", digest=trained.update.digest)
    record = await pairs.north.hub.last(UPDATE.stream, subject)
    assert record is not None
    elements = np.array(decode_tensors(record.data)[1]["weight"])
    assert np.std(elements / 2.0**64) > 0.15
    return elements


async def test_a_session_smaller_than_the_policys_minimum_is_refused_before_anything_is_shared(tmp_path: Path) -> None:
    pairs = Pairs(tmp_path, minimum=4)
    refused = await pairs.asks(TaskKind.ADVERTISE)
    assert (refused.outcome, refused.code) == (Outcome.REFUSED, "policy")
    assert "masking.minimum" in refused.reason


async def test_a_session_of_other_sites_than_the_pinned_roster_is_refused(tmp_path: Path) -> None:
    pairs = Pairs(tmp_path, roster="0" * 64)
    refused = await pairs.asks(TaskKind.SHARE, (await pairs.request()).encode())
    assert (refused.outcome, refused.code) == (Outcome.REFUSED, "tampered")
    assert "policy pins" in refused.reason


@pytest.mark.parametrize("kind", [TaskKind.SHARE, TaskKind.UNMASK, TaskKind.TRAIN])
async def test_a_task_without_its_payload_is_not_answered(tmp_path: Path, kind: TaskKind) -> None:
    pairs = Pairs(tmp_path)
    failed = await pairs.asks(kind)
    assert (failed.outcome, failed.code) == (Outcome.FAILED, "invalid-input")
    assert "payload" in failed.reason
    assert failed.update is None


async def test_keys_of_runs_that_are_long_over_are_erased(tmp_path: Path) -> None:
    pairs = Pairs(tmp_path)
    old = tmp_path / "north" / PAIRWISE / ("b" * 12)
    old.mkdir(parents=True)
    (old / "key").write_bytes(bytes(32))
    os.utime(old, (0, 0))
    done(await pairs.asks(TaskKind.ADVERTISE))
    assert not old.exists()
    assert (tmp_path / "north" / PAIRWISE / RUN / "key").exists()


@pytest.mark.parametrize(
    ("rules", "asked", "least"),
    [({}, 3, 3), ({"colluding": 1}, 3, 4), ({"colluding": 1}, 4, 4), ({"minimum": 5, "colluding": 2}, 3, 7)],
)
def test_a_sum_has_the_honest_sites_that_the_policy_wants_beside_those_who_may_collude(
    rules: dict[str, int], asked: int, least: int
) -> None:
    given = masked_task(minimum=asked)
    assert given.masking is not None
    assert smallest_sum(policy(**rules), given, given.masking) == least
