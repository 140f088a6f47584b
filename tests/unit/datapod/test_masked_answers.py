"""The agent's masked answers: what their sum is, and what cannot be found in any one of them."""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from directory_transfer import DirectoryTransfer
from hanse_datapod.home.journal import FILE
from hanse_datapod.home.outbox import LOG
from hanse_datapod.masking.remembered import Remembered
from hanse_datapod.policy.site_policy import OutputPolicy
from hanse_datapod.worker.port import WorkOutcome, WorkRequest
from hanse_fabric.clock import SystemClock
from hanse_fabric.messages import (
    HiddenFailure,
    MaskingMode,
    MaskShape,
    Outcome,
    PrivacyTerms,
    Progress,
    Result,
    Task,
    TaskKind,
)
from hanse_fabric.messages.privacy import Privacy
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.subjects import PROGRESS, UPDATE
from hanse_fabric.tensors.digest import digest_bytes, digest_file
from hanse_fabric.tensors.file import decode_tensors
from hanse_privacy.masks.seal import roster_digest, statement
from hanse_privacy.masks.total import mask_total, tally_mask_total
from hanse_privacy.ring.tally import sum_tallies
from hanse_site import link
from links import serve_uploads
from unit.datapod.masked_actors import PLAN, TensorWorker, evaluation, masked_task, model, opened, policy
from unit.datapod.site_actors import Site, task

Arrays = dict[str, np.ndarray]


def arrays_of(number: int, *, count: int = 20) -> Arrays:
    random = np.random.default_rng(number)
    return {"weight": random.normal(size=(count, 3)).astype("<f4"), "bias": random.normal(size=5).astype("<f4")}


def site_of(folder: Path, number: int, **fields: object) -> Site:
    worker = TensorWorker(arrays_of(number, **fields))
    worker.examples = 10 * (number + 1)
    worker.metrics = {"loss": 0.5 + number, "accuracy": 0.25}
    return Site(folder / f"site{number}", worker=worker, policy=policy())


async def object_of(site: Site, result: Result, digest: str) -> bytes:
    subject = UPDATE.of(project="triage", run=result.run, participant="north", digest=digest)
    record = await site.hub.last(UPDATE.stream, subject)
    assert record is not None
    return record.data


async def answers(site: Site, given: Task) -> tuple[Result, bytes, bytes]:
    """Result, masked update, tally; empty bytes where there is none."""
    await site.start()
    await site.give(given)
    [(result, _)] = await site.results(1)
    await site.stop()
    assert result.outcome is Outcome.DONE, result.reason
    update = await object_of(site, result, result.update.digest) if result.update is not None else b""
    tally = await object_of(site, result, result.tally.digest) if result.tally is not None else b""
    return result, update, tally


def total_of(notes: list, shape: MaskShape) -> np.ndarray:
    made = BytesIO()
    mask_total([note.seed for note in notes], shape, made)
    return decode_tensors(made.getvalue())[1]["u64"]


def elements(file: bytes) -> np.ndarray:
    layout, _ = decode_tensors(file)
    return np.frombuffer(file, dtype="<u8", offset=layout.data_start)


def ring_of(arrays: Arrays, weight: int, largest: int = PLAN.largest_weight) -> dict[str, np.ndarray]:
    """By hand: what the ring elements are before a mask is added."""
    scale = weight / largest
    return {
        name: np.rint(np.clip(a.astype("f8"), -8, 8) * scale * 2.0**30).astype("i8").astype("u8")
        for name, a in arrays.items()
    }


@pytest.mark.parametrize("largest", [PLAN.largest_weight, 25])  # one site has 30 examples, all have 60
async def test_three_masked_updates_less_their_masks_sum_to_the_ring_sum_of_the_plain_updates(
    tmp_path: Path, largest: int
) -> None:
    given = masked_task(plan=PLAN.model_copy(update={"largest_weight": largest}))
    sites = [site_of(tmp_path, n) for n in range(3)]
    found = [await answers(site, given) for site in sites]
    notes = [opened(given, result.seed) for result, _, _ in found]
    shape = found[0][0].seed.update
    assert shape == MaskShape(u64=65)
    total = sum(elements(update) for _, update, _ in found) - total_of(notes, shape)
    layout, _ = decode_tensors(found[0][1])
    plain = [ring_of(site.worker.arrays, site.worker.examples, largest) for site in sites]
    by_hand = np.concatenate([sum(each[entry.name] for each in plain).ravel() for entry in layout])
    assert total.tobytes() == by_hand.tobytes()


async def test_the_tallies_sum_to_weight_and_means(tmp_path: Path) -> None:
    given, sites = evaluation(), [site_of(tmp_path, n) for n in range(3)]
    found = [await answers(site, given) for site in sites]
    seeds = [opened(given, result.seed).seed for result, _, _ in found]
    assert all(result.update is None and result.seed.update is None for result, _, _ in found)
    tally = sum_tallies([tally for _, _, tally in found], PLAN, [tally_mask_total(seeds, 5)])
    assert tally.weight == 10 + 20 + 30
    assert tally.metrics["loss"] == pytest.approx((10 * 0.5 + 20 * 1.5 + 30 * 2.5) / 60)
    assert tally.metrics["accuracy"] == 0.25


async def test_ring_mode_is_the_same_without_masks_and_seeds(tmp_path: Path) -> None:
    site = site_of(tmp_path, 0)
    result, update, tally = await answers(site, masked_task(mode=MaskingMode.RING))
    assert result.seed is None
    layout, _ = decode_tensors(update)
    by_hand = ring_of(site.worker.arrays, site.worker.examples)
    assert elements(update).tobytes() == b"".join(by_hand[entry.name].tobytes() for entry in layout)
    assert sum_tallies([tally], PLAN).weight == 10


async def test_the_sealed_seed_carries_the_sites_conditions_and_its_signature(tmp_path: Path) -> None:
    roster = roster_digest([b"1" * 32, b"2" * 32])
    site = site_of(tmp_path, 0)
    site.policy = policy(minimum=3, roster=roster.hex())
    given = masked_task()
    result, _, _ = await answers(site, given)
    note = opened(given, result.seed)
    assert (note.minimum, note.roster) == (3, roster)
    said = statement("triage", given.run, given.masking.session, result.seed)
    assert site.identity.signing_key.verify_key.is_valid(result.seed.signature, said)
    assert site.identity.signing_key.verify_key.is_valid(
        result.signature, result.canonical(without=frozenset({"signature"}))
    )


@pytest.mark.parametrize(("minimum", "active", "colluding", "sealed"), [(3, 9, 2, 7), (8, 9, 2, 8), (3, 3, 2, 3)])
async def test_the_sealed_minimum_is_the_number_of_shares_that_give_the_charged_noise(
    tmp_path: Path, minimum: int, active: int, colluding: int, sealed: int
) -> None:
    site = site_of(tmp_path, 0)
    site.policy = policy(minimum=minimum)
    privacy = Privacy(
        placement="distributed", mechanism="laplace", noise="distributed-gamma", noise_multiplier=2.0,
        colluding=colluding,
    )  # fmt: skip
    plan = PLAN.model_copy(update={"participants": 9, "largest_weight": 1})
    terms = PrivacyTerms(privacy=privacy, rounds=1, round=1, active=active)
    given = masked_task(
        plan=plan, privacy=terms, peers=active, minimum=minimum, model=model(site.worker.arrays)
    )  # fmt: skip
    result, update, _ = await answers(site, given)
    note = opened(given, result.seed)
    assert note.minimum == sealed
    bare = (elements(update) - total_of([note], result.seed.update)).view("i8")
    layout, _ = decode_tensors(update)
    plain = np.concatenate([site.worker.arrays[entry.name].ravel() for entry in layout]).astype("f8") * 2.0**30
    assert np.abs(bare - plain).max() > 1  # rounding alone moves by a half


async def test_no_plain_update_leaves_and_none_stays_on_the_disk(tmp_path: Path) -> None:
    site, given = site_of(tmp_path, 6), masked_task()
    site.worker.examples, site.worker.metrics = 77, {"loss": 0.6180339887, "accuracy": 0.25}
    result, update, tally = await answers(site, given)
    note = opened(given, result.seed)
    assert (result.examples, result.metrics) == (0, {})
    plain = [a.tobytes() for a in site.worker.arrays.values()]
    plain += [a.tobytes() for a in ring_of(site.worker.arrays, 77).values()]
    secret = [note.seed, note.seed.hex().encode(), b"0.618", struct.pack("<d", 0.6180339887)]
    kept = {path: path.read_bytes() for path in site.home.rglob("*") if path.is_file()}
    assert {path.name for path in kept} >= {FILE, LOG}
    for where, content in [*kept.items(), ("result", result.encode()), ("update", update), ("tally", tally)]:
        for part in plain:
            assert part[:16] not in content, where
        for part in secret:
            assert part not in content, where
    assert not list((site.home / "work").iterdir())
    assert b'"what":"masked-update"' in kept[site.home / LOG]
    assert b'"what":"tally"' in kept[site.home / LOG]


async def test_two_sessions_have_two_seeds(tmp_path: Path) -> None:
    site = site_of(tmp_path, 0)
    await site.start()
    seeds, steps = set(), ("r1-train", "r2-train")
    for number, step in enumerate(steps, 1):
        given = masked_task(step)
        await site.give(given)
        result = (await site.results(number))[-1][0]
        seeds.add(opened(given, result.seed).seed)
    await site.stop()
    assert len(seeds) == 2


async def test_a_session_is_answered_to_one_task_only(tmp_path: Path) -> None:
    site = site_of(tmp_path, 0)
    await site.start()
    await site.give(masked_task("r1-train", session="sum"))
    await site.results(1)
    await site.stop()
    await site.start()
    await site.give(masked_task("r1-again", session="sum", config={"model": {"name": "logistic"}}))
    result = (await site.results(2))[-1][0]
    await site.stop()
    assert (result.outcome, result.code, result.update, result.seed) == (Outcome.REFUSED, "conflict", None, None)
    assert "has answered it already" in result.reason
    assert not list((site.home / "work").iterdir())


@pytest.mark.parametrize("count", [20, 20_000])
async def test_a_step_that_is_opened_again_is_answered_with_the_same_bytes(tmp_path: Path, count: int) -> None:
    site, store = site_of(tmp_path, 0, count=count), DirectoryStore(tmp_path / "store")
    site.transfer = DirectoryTransfer(tmp_path / "store")
    serve_uploads(site, store)
    await site.start()
    await site.give(masked_task("r1-train", session="r1-train"))
    [(first, _)] = await site.results(1)
    await site.give(masked_task("r1-train-2", session="r1-train"))
    again = (await site.results(2))[-1][0]
    await site.stop()
    assert (again.step, again.outcome) == ("r1-train-2", Outcome.DONE)
    assert (again.update.digest, again.tally, again.seed) == (first.update.digest, first.tally, first.seed)
    if again.update.key:
        assert digest_bytes(store.get(again.update.key, limit=1 << 20))[0] == first.update.digest
        assert again.task in again.update.key
    key = site.identity.signing_key.verify_key
    assert key.is_valid(again.signature, again.canonical(without=frozenset({"signature"})))
    assert len(site.worker.requests) == 1


async def test_metrics_that_may_not_leave_are_not_in_the_tally_either(tmp_path: Path) -> None:
    site = site_of(tmp_path, 0)
    site.policy = policy().model_copy(update={"outputs": OutputPolicy(metrics=("accuracy",))})
    result, _, tally = await answers(site, masked_task(mode=MaskingMode.RING))
    assert sum_tallies([tally], PLAN).metrics == {"accuracy": 0.25}
    assert result.reason == "withheld by the site's policy: metrics loss"


async def test_too_few_examples_are_refused_and_their_number_is_not_told(tmp_path: Path) -> None:
    site = site_of(tmp_path, 1)
    site.policy = policy().model_copy(update={"outputs": OutputPolicy(minimum_examples=50)})
    await site.start()
    await site.give(masked_task())
    [(result, _)] = await site.results(1)
    await site.stop()
    assert (result.outcome, result.reason) == (Outcome.REFUSED, HiddenFailure.UNFIT.text)


@pytest.mark.parametrize("kind", [TaskKind.ADVERTISE, TaskKind.SHARE, TaskKind.UNMASK])
async def test_a_task_of_the_masking_protocol_reaches_no_worker_and_makes_no_update(
    tmp_path: Path, kind: TaskKind
) -> None:
    """A worker that took them for training would avoid the rules for training: required masks, the privacy budget."""
    site = site_of(tmp_path, 0)
    await site.start()
    await site.give(task(kind=kind))
    [(result, _)] = await site.results(1)
    await site.stop()
    assert result.outcome is not Outcome.DONE
    assert result.update is None
    assert site.worker.requests == []


@pytest.mark.parametrize("value", [np.nan, np.inf])
async def test_an_update_with_a_value_that_no_sum_carries_fails_by_a_fixed_code_and_its_files_are_removed(
    tmp_path: Path, value: float
) -> None:
    site = site_of(tmp_path, 0)
    site.worker.arrays["bias"][3] = value
    await site.start()
    await site.give(masked_task(plan=PLAN.model_copy(update={"refuse_out_of_range": True})))
    [(result, encoded)] = await site.results(1)
    await site.stop()
    assert (result.outcome, result.reason) == (Outcome.FAILED, HiddenFailure.FAILED.text)
    assert (result.update, result.tally, result.seed) == (None, None, None)
    assert b"1e+06" not in encoded
    assert not list((site.home / "work").iterdir())


def read_for_a_digest(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that the site's side of the hub reads for their digest, as it goes on."""
    read = list[Path]()

    def noted(path: Path) -> tuple[str, tuple[str, ...]]:
        read.append(path)
        return digest_file(path)

    monkeypatch.setattr(link, "digest_file", noted)
    return read


@pytest.mark.parametrize("count", [20, 20_000])
async def test_a_masked_update_is_hashed_while_it_is_written_and_a_workers_file_when_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Site code may run in a worker: what it would say of its file is not what the outbox log takes."""
    read = read_for_a_digest(monkeypatch)
    for given, times in ((masked_task(), 0), (task(), 1)):
        site, store = site_of(tmp_path / str(times), 0, count=count), DirectoryStore(tmp_path / "store")
        site.transfer = DirectoryTransfer(tmp_path / "store")
        serve_uploads(site, store)
        await site.start()
        await site.give(given)
        [(result, _)] = await site.results(1)
        await site.stop()
        key, digest = result.update.key, result.update.digest
        data = store.get(key, limit=1 << 20) if key else await object_of(site, result, digest)
        assert digest_bytes(data) == (result.update.digest, result.update.leaves)
        assert len(read) == times


async def test_a_large_masked_update_goes_through_the_store_and_its_plain_file_is_gone(tmp_path: Path) -> None:
    site, store = site_of(tmp_path, 0, count=20_000), DirectoryStore(tmp_path / "store")
    site.transfer = DirectoryTransfer(tmp_path / "store")

    serve_uploads(site, store)
    given = masked_task()
    await site.start()
    await site.give(given)
    [(result, _)] = await site.results(1)
    await site.stop()
    data = store.get(result.update.key, limit=1 << 20)
    assert digest_bytes(data)[0] == result.update.digest
    [kept] = (site.home / "work").iterdir()
    assert kept.read_bytes() == data
    shape, note = result.seed.update, opened(given, result.seed)
    layout, _ = decode_tensors(data)
    by_hand = ring_of(site.worker.arrays, 10)
    plain = np.concatenate([by_hand[entry.name].ravel() for entry in layout])
    assert (elements(data) - total_of([note], shape)).tobytes() == plain.tobytes()


class TellingWorker(TensorWorker):
    """Tells its progress again and again, for one message may be lost, and goes on when that has been heard."""

    def __init__(self, arrays: Arrays) -> None:
        super().__init__(arrays)
        self.heard = asyncio.Event()

    async def work(self, request: WorkRequest, on_progress: Callable[[float, str], None]) -> WorkOutcome:
        for step in itertools.cycle((2, 3)):
            on_progress(step / 4, f"step {step} of 4, loss 0.6931")
            with suppress(TimeoutError):
                await asyncio.wait_for(self.heard.wait(), 1.5)
                break
        return await super().work(request, on_progress)


@pytest.mark.parametrize(("given", "text"), [(masked_task(), ""), (task(), "step {} of 4, loss 0.6931")])
async def test_losses_are_not_told_while_the_work_goes_on(tmp_path: Path, given: Task, text: str) -> None:
    worker = TellingWorker(arrays_of(0))
    site = Site(tmp_path / "site", worker=worker, policy=policy())
    await site.start()
    await site.give(given)
    async with asyncio.timeout(60), site.hub.follow(PROGRESS.stream, PROGRESS.wildcard(project="triage")) as records:
        async for record in records:
            told = Progress.decode(record.data)
            break
    worker.heard.set()
    [(result, _)] = await site.results(1)
    await site.stop()
    assert (told.text, result.outcome) == (text.format(round(4 * told.fraction)), Outcome.DONE)
    assert told.fraction in (0.5, 0.75)


def test_what_hides_kept_back_numbers_is_of_one_site_and_request_and_the_same_after_a_restart(tmp_path: Path) -> None:
    def made(given: Task, home: str = "home") -> bytes:
        return Remembered(tmp_path / home, policy(), SystemClock()).blinding(given)

    asked = masked_task()
    assert made(asked) == made(asked)
    others = [
        made(masked_task("r2-train", session="r2-train")), made(asked.model_copy(update={"participant": "other"})),
        made(asked, "another home"),
    ]  # fmt: skip
    assert len({made(asked), *others}) == 4
