"""Who makes a run's first model: any one participant that can, however many cannot."""

from __future__ import annotations

from workflow_hub import Hub, at_work, job_of

from hanse_fabric.messages import Outcome


async def test_a_first_model_is_made_while_one_participant_can(hub: Hub) -> None:
    names = ("alder", "beech", "cedar", "ebony", "hazel", "maple")
    async with hub.running(*names), at_work(hub.supervisor()):
        for name in names[:-1]:
            hub.sites[name].behave = lambda _: {"outcome": Outcome.REFUSED, "update": None, "reason": "no data"}
        await hub.submit(job_of(rounds=1, participants={"minimum": 1, "quorum": 0.1}))
        record = await hub.ended()
    assert (record.state, record.reason) == ("completed", "")
    assert sum(kind == "initialize" for _, kind in hub.sites["maple"].done) == 1


async def test_a_run_in_which_nobody_can_make_a_first_model_fails_and_names_them(hub: Hub) -> None:
    names = ("alder", "beech", "cedar", "ebony", "hazel")
    async with hub.running(*names), at_work(hub.supervisor()):
        for name in names:
            hub.sites[name].behave = lambda _: {"outcome": Outcome.REFUSED, "update": None, "reason": "no data"}
        await hub.submit(job_of(rounds=1, participants={"minimum": 1, "quorum": 0.1}))
        record = await hub.ended()
    assert record.state == "failed"
    assert "hazel refused (no data)" in record.reason
