"""A run from its submission to its end, undisturbed."""

from __future__ import annotations

import pytest
from workflow_hub import PROJECT, RUN, Hub, at_work, job_of

from hanse_fabric.messages import JobKind
from hanse_fabric.subjects import REDUCED, RESULT, TASK, UPDATE


async def test_a_run_trains_every_round_and_publishes_its_models(hub: Hub) -> None:
    async with hub.running("north", "south"), at_work(hub.supervisor()):
        await hub.submit(job_of())
        record = await hub.ended()
    assert (record.state, record.round, record.reason) == ("completed", 3, "")
    assert record.model_version == 3
    assert record.metrics["accuracy"] == pytest.approx(0.3)
    assert [kind for _, kind in sorted(hub.sites["north"].done)].count("train") == 3
    assert set(hub.sites["north"].done.values()) == {1}


async def test_a_run_leaves_nothing_but_its_record_journal_and_models(hub: Hub) -> None:
    async with hub.running("north", "south"):
        async with at_work(hub.supervisor()):
            await hub.submit(job_of())
            await hub.ended()
            await hub.event("state", state="completed")
        for subject in (TASK, RESULT, REDUCED, UPDATE):
            assert await hub.bus.snapshot(subject.stream, subject.wildcard(project=PROJECT, run=RUN)) == []


async def test_events_tell_the_story_in_order(hub: Hub) -> None:
    async with hub.running("north", "south"), at_work(hub.supervisor()):
        await hub.submit(job_of(rounds=2))
        await hub.event("state", state="completed")
    told = [(event.kind, event.round) for event in await hub.events("state", "round-started", "round-finished")]
    assert told == [
        ("state", 0),
        ("round-started", 1),
        ("round-finished", 1),
        ("round-started", 2),
        ("round-finished", 2),
        ("state", 0),
    ]


async def test_a_finished_round_tells_the_bytes_of_its_models_and_updates(hub: Hub) -> None:
    async with hub.running("north", "south"), at_work(hub.supervisor()):
        await hub.submit(job_of(rounds=2, evaluate={"every": 2}))
        await hub.event("state", state="completed")
    tasks = [event.data["bytes"] for event in await hub.events("round-finished")]
    assert all(sent["up"] > 0 for sent in tasks)
    # Two sites are sent the round's model to train, and in the second round its new model to evaluate, too.
    assert tasks[1]["down"] > tasks[0]["down"] > 0
    assert tasks[0]["down"] % 2 == 0


async def test_the_same_job_gives_the_same_model(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> None:
    digests = set()
    for each in (hub, Hub(tmp_path_factory.mktemp("again"))):
        async with each.running("north", "south"), at_work(each.supervisor()):
            await each.submit(job_of())
            digests.add((await each.ended()).model_digest)
    assert len(digests) == 1


async def test_early_stopping_ends_a_run_at_its_target(hub: Hub) -> None:
    async with hub.running("north", "south"), at_work(hub.supervisor()):
        await hub.submit(job_of(rounds=9, stop={"metric": "accuracy", "target": 0.2}))
        record = await hub.ended()
    assert (record.state, record.round) == ("completed", 2)


async def test_a_stop_metric_that_no_site_reports_fails_the_run_and_names_those_reported(hub: Hub) -> None:
    async with hub.running("north", "south"), at_work(hub.supervisor()):
        await hub.submit(job_of(stop={"metric": "auc", "target": 0.2}))
        record = await hub.ended()
    assert record.state == "failed"
    assert "'auc'" in record.reason
    assert "accuracy" in record.reason


async def test_a_large_reduction_is_opened_sharded_and_closed(hub: Hub) -> None:
    from hanse_coordinator.verbs.reductions import Limits

    async with hub.running("north", "south"), at_work(hub.supervisor(reduce=Limits(whole_bytes=1))):
        await hub.submit(job_of(rounds=1))
        assert (await hub.ended()).state == "completed"
    assert hub.kinds[-3:] == [JobKind.OPEN, JobKind.SHARD, JobKind.CLOSE]


async def test_a_large_reduction_is_measured_between_open_and_shard_where_its_strategy_measures(hub: Hub) -> None:
    from hanse_coordinator.verbs.reductions import Limits

    strategy = {"reduction": {"name": "norm_clipping", "norm": 1.0}}
    async with hub.running("north", "south"), at_work(hub.supervisor(reduce=Limits(whole_bytes=1))):
        await hub.submit(job_of(rounds=1, strategy=strategy))
        assert (await hub.ended()).state == "completed"
    assert hub.kinds[-4:] == [JobKind.OPEN, JobKind.MEASURE, JobKind.SHARD, JobKind.CLOSE]
    assert [ref.inline for ref in hub.told] == [b"[0, 1]"]
