"""The agent on an in-process bus: what it answers, and what it does not do twice."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from directory_transfer import DirectoryTransfer
from hanse_datapod.agent import watched_work
from hanse_datapod.answers.plain import reference_to
from hanse_datapod.home.line_day import LineDay
from hanse_datapod.home.outbox import LOG, verify_log
from hanse_datapod.home.works import FILE as WORKS
from hanse_datapod.policy.site_policy import LimitPolicy, OutputPolicy, Policy, SiteCodePolicy
from hanse_fabric import durable
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Outcome, TaskKind
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.subjects import PRESENCE, TASK
from hanse_fabric.tensors.digest import digest_bytes
from hanse_site import SiteLink
from links import serve_uploads
from open_files import open_under
from unit.datapod.masked_actors import masked_task
from unit.datapod.site_actors import CountingWorker, Site, task


async def test_a_task_is_done_and_answered_with_a_signed_result(site: Site) -> None:
    await site.start()
    await site.give(task())
    [(result, _)] = await site.results(1)
    assert (result.outcome, result.examples, result.metrics) == (Outcome.DONE, 10, {"loss": 0.5})
    key = site.identity.signing_key.verify_key
    assert key.is_valid(result.signature, result.canonical(without=frozenset({"signature"})))
    assert digest_bytes(await site.update_of(result))[0] == result.update.digest


async def test_the_same_task_after_a_restart_is_answered_with_the_same_bytes_and_not_done_again(site: Site) -> None:
    await site.start()
    await site.give(task())
    [(_, first)] = await site.results(1)
    await site.stop()
    site.forget_hub()
    await site.start()
    await site.give(task())
    [(_, again)] = await site.results(1)
    assert again == first
    assert len(site.worker.requests) == 1


async def test_a_site_that_was_away_does_only_the_round_that_is_open_now(site: Site) -> None:
    closed = [task(f"r{n}-train", round=n) for n in (1, 2)]
    for each in closed:
        await site.give(each)
        await site.close_step(each)
    await site.give(task("r3-train", round=3))
    await site.start()
    [(result, _)] = await site.results(1)
    assert result.step == "r3-train"
    assert [request.round for request in site.worker.requests] == [3]


async def test_only_the_newest_open_task_of_a_run_is_done(site: Site) -> None:
    await site.give(task("r1-train", round=1))
    await site.give(task("r1-train-2", round=1))
    await site.give(task("r7-train", run="b" * 12, round=7))
    await site.start()
    results = [result.step for result, _ in await site.results(2)]
    assert results == ["r1-train-2", "r7-train"]


async def test_work_is_given_up_when_a_newer_step_of_its_run_opens(site: Site) -> None:
    site.worker.hold = asyncio.Event()
    await site.start()
    await site.give(task("r1-train"))
    await asyncio.wait_for(site.worker.began.wait(), 60)
    site.worker.hold = None
    await site.give(task("r2-train", round=2))
    [(result, _)] = await site.results(1)
    assert result.step == "r2-train"
    assert [request.round for request in site.worker.stopped] == [1]


async def test_a_task_long_past_its_deadline_is_not_begun(site: Site) -> None:
    past = datetime.now(UTC) - timedelta(hours=1)
    await site.give(task("r1-train", issued_at=past - timedelta(seconds=60), deadline=past))
    await site.give(task("r1-train", run="b" * 12))
    await site.start()
    [(result, _)] = await site.results(1)
    assert result.run == "b" * 12


async def test_initialize_and_evaluate_are_answered(site: Site) -> None:
    await site.start()
    await site.give(task("init", kind=TaskKind.INITIALIZE, round=0, model=None, peers=1))
    [(first, _)] = await site.results(1)
    await site.give(task("r1-evaluate", kind=TaskKind.EVALUATE))
    second = (await site.results(2))[1][0]
    assert first.update is not None
    assert (second.update, second.metrics) == (None, {"loss": 0.5})


async def test_a_failing_trainer_is_an_answer_with_its_reason(site: Site) -> None:
    site.worker.error = HanseError(ErrorCode.TRAINING_FAILED, "loss: nan", hint="lower the learning rate")
    await site.start()
    await site.give(task())
    [(result, _)] = await site.results(1)
    assert (result.outcome, result.code) == (Outcome.FAILED, "training-failed")
    assert result.reason == "loss: nan (lower the learning rate)"


async def test_a_worker_whose_process_was_killed_is_asked_again(site: Site) -> None:
    site.worker.deaths = 2
    await site.start()
    await site.give(task())
    [(result, _)] = await site.results(1)
    assert result.outcome is Outcome.DONE
    assert [request.seed for request in site.worker.requests] == [7, 7, 7]


async def test_a_task_whose_work_was_stopped_is_done_after_the_next_start(site: Site) -> None:
    site.worker.hold = asyncio.Event()
    await site.start()
    await site.give(task())
    await asyncio.wait_for(site.worker.began.wait(), 60)
    await site.stop()
    assert len(site.worker.stopped) == 1
    site.worker.hold = None
    await site.start()
    [(result, _)] = await site.results(1)
    assert result.outcome is Outcome.DONE


async def test_a_metric_that_is_not_finite_fails_the_task_by_name(site: Site) -> None:
    site.worker.metrics = {"loss": float("nan")}
    await site.start()
    await site.give(task())
    [(result, _)] = await site.results(1)
    assert (result.outcome, result.code) == (Outcome.FAILED, "training-failed")
    assert "metric loss" in result.reason


async def test_data_that_do_not_fit_the_schema_refuse_every_task_with_the_reason(site: Site) -> None:
    site.worker.unfit = HanseError(ErrorCode.SCHEMA_MISMATCH, "data.csv: column age is missing")
    await site.start()
    await site.give(task())
    [(result, _)] = await site.results(1)
    assert (result.outcome, result.code) == (Outcome.REFUSED, "schema-mismatch")
    assert "column age is missing" in result.reason
    assert site.worker.requests == []


async def test_a_model_that_is_not_the_announced_one_is_refused(site: Site) -> None:
    other = task().model.model_copy(update={"digest": "0" * 64})
    await site.start()
    await site.give(task(model=other))
    [(result, _)] = await site.results(1)
    assert (result.outcome, result.code) == (Outcome.REFUSED, "tampered")


async def test_a_task_of_an_unknown_version_is_refused_so_that_the_owner_sees_why(site: Site) -> None:
    given = task()
    await site.start()
    subject = TASK.of(project="triage", participant="north", run=given.run, step=given.step)
    await site.hub.publish(subject, given.encode().replace(b"hanse.task/1", b"hanse.task/9"))
    [(result, _)] = await site.results(1)
    assert (result.outcome, result.code) == (Outcome.REFUSED, "unknown-schema")
    assert "hanse.task/9" in result.reason


async def test_a_task_that_no_device_of_the_site_is_made_for_is_refused_before_anything_is_done(site: Site) -> None:
    site.worker.unplaced = HanseError(ErrorCode.NO_DEVICE, "train.resources: device gpu is asked for")
    await site.start()
    await site.give(task(config={"train": {"resources": {"device": "gpu"}}}))
    [(result, _)] = await site.results(1)
    assert (result.outcome, result.code) == (Outcome.REFUSED, "no-device")
    assert "device gpu is asked for" in result.reason
    assert site.worker.required == [{"train": {"resources": {"device": "gpu"}}}]
    assert site.worker.requests == []


async def test_a_policy_violation_is_refused_with_the_rule(tmp_path) -> None:
    cases = [
        (Policy(projects=("other",)), {}, "projects"),
        (Policy(workflows=("study",)), {}, "workflows"),
        (Policy(models=("logistic",)), {}, "models"),
        (Policy(minimum_participants=5), {}, "minimum_participants"),
        (Policy(), {"config": {"code": {"name": "mine", "digest": "1" * 64}}}, "site_code.digests"),
        (Policy(site_code=SiteCodePolicy(digests=("2" * 64,))), {"config": {"code": {"digest": "1" * 64}}}, "1111"),
        (Policy(outputs=OutputPolicy(updates=False)), {}, "outputs.updates"),
        (Policy(outputs=OutputPolicy(minimum_examples=50)), {}, "outputs.minimum_examples"),
    ]
    for number, (policy, fields, rule) in enumerate(cases):
        site = Site(tmp_path / str(number), policy=policy)
        await site.start()
        await site.give(task(**fields))
        [(result, _)] = await site.results(1)
        await site.stop()
        assert (result.outcome, result.code) == (Outcome.REFUSED, "policy"), rule
        assert rule in result.reason
        assert "policy" in result.reason
        assert result.update is None
        assert not list((site.home / "work").glob("*"))


async def test_a_site_whose_line_is_spent_for_the_day_sits_out_in_words(tmp_path) -> None:
    """Models and updates (of 32 bytes here) count; what is fetched once counts once."""
    mib = (task().model.size + 32) / 2**20
    site = Site(tmp_path / "site", policy=Policy(limits=LimitPolicy(mib_a_day=mib)))
    await site.start()
    await site.give(task())
    await site.results(1)
    moved, now = LineDay(site.home), datetime.now(UTC).timestamp()
    moved.begin([task().model], now, mib)  # the same model again is nothing more
    changed = task(step="r2-train").model.model_copy(update={"digest": "0" * 64})
    await site.give(task(step="r2-train", model=changed))
    (_, _), (result, _) = await site.results(2)
    await site.stop()
    assert (result.outcome, result.code) == (Outcome.REFUSED, "policy")
    assert "limits.mib_a_day" in result.reason
    # A day later its line carries as much again.
    moved.begin([changed], now + 86_401, mib)


async def test_metrics_that_may_not_leave_are_withheld_and_the_answer_names_them(tmp_path) -> None:
    worker = CountingWorker()
    worker.metrics = {"loss": 0.5, "rarest_patient": 1.0}
    site = Site(tmp_path / "s", worker=worker, policy=Policy(outputs=OutputPolicy(metrics=("loss",))))
    await site.start()
    await site.give(task())
    [(result, encoded)] = await site.results(1)
    await site.stop()
    assert result.metrics == {"loss": 0.5}
    assert result.reason == "withheld by the site's policy: metrics rarest_patient"
    assert b"1.0" not in encoded


async def test_the_workers_limits_come_from_policy_and_deadline(tmp_path) -> None:
    site = Site(tmp_path / "s", policy=Policy(limits=LimitPolicy(seconds=5, memory_mib=512, processes=3)))
    await site.start()
    await site.give(task())
    await site.results(1)
    await site.stop()
    [request] = site.worker.requests
    assert (request.time_limit, request.memory_limit, request.processes) == (5, 512 << 20, 3)


async def with_links(site: Site, tmp_path: Path) -> DirectoryStore:
    """Give the site large updates, and a store for them."""
    store = DirectoryStore(tmp_path / "store")
    site.transfer = DirectoryTransfer(tmp_path / "store")
    site.worker.size = 200_000

    serve_uploads(site, store)
    return store


async def test_a_large_update_goes_through_the_store_by_a_link(site: Site, tmp_path) -> None:
    store = await with_links(site, tmp_path)
    await site.start()
    await site.give(task())
    [(result, _)] = await site.results(1)
    assert result.update is not None
    assert digest_bytes(store.get(result.update.key, limit=1 << 20))[0] == result.update.digest


async def test_a_site_does_a_round_again_for_a_restored_hub_when_the_update_was_cleared_away(
    site: Site, tmp_path
) -> None:
    await with_links(site, tmp_path)
    await site.start()
    for number in (1, 2):
        await site.give(task(f"r{number}-train", round=number))
        await site.results(number)
        await site.close_step(task(f"r{number}-train", round=number))
    await site.stop()
    site.forget_hub()
    store = await with_links(site, tmp_path / "restored")
    await site.start()
    await site.give(task(round=1))
    [(result, _)] = await site.results(1)
    assert result.outcome is Outcome.DONE
    assert digest_bytes(store.get(result.update.key, limit=1 << 20))[0] == result.update.digest
    assert [request.round for request in site.worker.requests] == [1, 2, 1]


@pytest.mark.parametrize("taken", ["nothing", "its end", "a page of it", "all of it"])
async def test_what_a_power_cut_took_of_a_large_update_is_made_again_and_a_whole_one_is_not(
    site: Site, tmp_path: Path, taken: str
) -> None:
    """Nobody waits for the disk where the work may be done again."""
    await with_links(site, tmp_path)
    await site.start()
    await site.give(task())
    await site.results(1)
    await site.stop()
    [update] = (site.home / "work").glob("*.update")
    whole = update.read_bytes()
    match taken:
        case "its end":
            update.write_bytes(whole[:4096])
        case "a page of it":
            update.write_bytes(whole[:4096] + bytes(4096) + whole[8192:])
        case "all of it":
            update.unlink()
    site.forget_hub()
    store = await with_links(site, tmp_path / "again")
    await site.start()
    await site.give(task())
    [(result, _)] = await site.results(1)
    assert result.outcome is Outcome.DONE
    sent = store.get(result.update.key, limit=1 << 20)
    assert digest_bytes(sent)[0] == result.update.digest
    assert len(site.worker.requests) == (1 if taken == "nothing" else 2)
    assert (sent == whole) is (taken == "nothing")


def test_a_large_update_is_on_the_disk_before_it_leaves_where_a_second_one_would_tell_more(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        durable, "sync", lambda open_file: synced.append(str(Path(f"/proc/self/fd/{open_file}").readlink()))
    )
    link, update = SiteLink(site.hub, site.identity, site.transfer), tmp_path / "update"
    update.write_bytes(bytes(1 << 20))
    charged = task().model_copy(update={"privacy": object()})
    for asked in (task(), masked_task(), charged):
        synced.clear()
        reference_to(link, asked, update)
        assert synced == ([] if asked.masking is None and asked.privacy is None else [str(update), str(tmp_path)])


async def test_everything_that_leaves_is_in_the_outbox_log(site: Site) -> None:
    await site.start()
    await site.give(task())
    [(result, encoded)] = await site.results(1)
    await site.stop()
    text = (site.home / LOG).read_text()
    assert verify_log(site.home).broken is None
    assert result.update.digest in text
    assert digest_bytes(encoded)[0] in text


async def test_work_stops_when_the_hub_closed_its_task_but_not_when_one_look_misses_the_task(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = [False, False, True, False, False, False]
    site.worker.hold = asyncio.Event()

    async def look(*_: object) -> bool:
        return looks.pop(0)

    monkeypatch.setattr(watched_work, "open_or_unknown", look)
    monkeypatch.setattr(watched_work, "TICK_S", 0.01)
    monkeypatch.setattr(watched_work, "LOOK_S", 0.0)
    await site.start()
    await site.give(task())
    async with asyncio.timeout(60):
        while not site.worker.stopped:  # noqa: ASYNC110 - the worker is told by being cancelled
            await asyncio.sleep(0.01)
    assert looks == []


async def test_a_sign_of_life_is_written_down_before_it_leaves(site: Site) -> None:
    subject = PRESENCE.of(project="triage", participant="north")
    async with asyncio.timeout(60), site.hub.follow(PRESENCE.stream, subject) as records:
        await site.start()
        await anext(records)
    await site.stop()
    assert '"what":"presence"' in (site.home / LOG).read_text()


async def test_a_site_that_has_ended_leaves_open_what_tells_its_place_alone(site: Site) -> None:
    await site.start()
    await site.give(task())
    await site.results(1)
    assert len(open_under(site.home)) > 5
    await site.stop()
    assert open_under(site.home) == [str(site.home / WORKS)]
