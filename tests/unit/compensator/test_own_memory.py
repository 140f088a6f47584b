"""What the compensator remembers by itself, when the hub has forgotten."""

import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from hanse_compensator.own_memory import OwnMemory
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.subjects import MASK_RECORDS

SETS = ["a" * 64, "b" * 64]


async def test_a_second_set_is_refused_although_the_hub_has_lost_the_record(triage, tmp_path):
    own = OwnMemory(tmp_path / "memory")
    first, second = triage.request(triage.sites[:3]), triage.request(triage.sites[1:])
    async with triage.running(own=own):
        answer = await triage.ask(first)
        assert answer.sum is not None
        tokens = {"project": "triage", "run": first.run, "session": first.session}
        await triage.bus.purge(MASK_RECORDS.stream, MASK_RECORDS.of(**tokens))
    async with triage.running(own=OwnMemory(tmp_path / "memory")):
        refusal = await triage.ask(second)
        assert (refusal.sum, refusal.code) == (None, ErrorCode.CONFLICT.code)
        assert "the hub has forgotten" in refusal.reason


async def test_the_same_set_is_answered_again_after_the_hub_has_lost_the_record(triage, tmp_path):
    request = triage.request()
    async with triage.running(own=OwnMemory(tmp_path / "memory")):
        answer = await triage.ask(request)
        tokens = {"project": "triage", "run": request.run, "session": request.session}
        await triage.bus.purge(MASK_RECORDS.stream, MASK_RECORDS.of(**tokens))
        assert await triage.ask(request) == answer


def test_one_of_many_claims_to_a_session_wins(triage, tmp_path):
    path = tmp_path / "memory"
    request = triage.request()
    with ThreadPoolExecutor(8) as threads:
        won = list(threads.map(lambda index: OwnMemory(path).claim(request, SETS[index % 2]), range(16)))
    assert won in ([True, False] * 8, [False, True] * 8)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_claim_stays_after_a_power_cut(tmp_path):
    """A claim is made by removing SQLite's journal, and only EXTRA (3) waits until the folder has it: a journal that
    comes back would take the claim back."""
    memory = OwnMemory(tmp_path / "memory")
    for opened in (memory, memory.works):
        with closing(opened._open()) as database:
            assert database.execute("PRAGMA synchronous").fetchone()[0] == 3


def test_a_memory_that_cannot_be_written_stops_the_sums(triage, tmp_path):
    path = tmp_path / "memory"
    memory = OwnMemory(path)
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(HanseError) as caught:
        memory.claim(triage.request(), SETS[0])
    assert caught.value.code is ErrorCode.UNAVAILABLE
    with pytest.raises(HanseError, match="HANSE_COMPENSATOR_MEMORY"):
        OwnMemory(path)
