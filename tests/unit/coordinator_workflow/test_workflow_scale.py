"""A thousand participants in one process."""

from __future__ import annotations

from workflow_hub import Hub, at_work, job_of

NAMES = [f"site-{index:04}" for index in range(1000)]


async def test_a_thousand_participants_with_a_tenth_silent_finish_their_rounds(hub: Hub) -> None:
    async with hub.running(*NAMES), at_work(hub.supervisor(lease_ttl=30.0)):
        for name in NAMES:
            turn = int(name[-1])
            # Round 0 is the first model's, whose maker would be waited for until its deadline.
            hub.sites[name].behave = lambda task, turn=turn: None if task.round and task.round % 10 == turn else {}  # type: ignore[misc]
        await hub.submit(job_of(participants={"quorum": 0.85, "grace": 0.2, "deadline": 60.0}, evaluate={"every": 0}))
        record = await hub.ended()
        finished = await hub.events("round-finished")
    assert record.state == "completed"
    assert [len(event.data["participants"]) for event in finished] == [900, 900, 900]
