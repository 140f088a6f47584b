"""A step whose sum an aggregator refuses is summed again by so many fewer that the difference tells of no few."""

from __future__ import annotations

from pathlib import Path

from clocks import in_virtual_time
from hanse_fabric.messages import TaskKind
from hanse_fabric.virtual_time import VirtualClock
from simulation.faults import seals_nothing, tampers
from simulation.stories import completed, hub_of
from simulation.test_masked_rounds import MANY, TOLERANT, masked_job, sums


@in_virtual_time
async def test_two_sums_of_a_step_never_differ_by_fewer_than_the_minimum(clock: VirtualClock, tmp_path: Path) -> None:
    """Else an aggregator that refuses a good update would learn it, from the sums with and without."""
    async with hub_of(clock, tmp_path, *MANY) as made:
        made.let("west", tampers(TaskKind.TRAIN))
        await completed(made, masked_job(participants=TOLERANT))
    with_it, without = set(sums(made)["r1-train"]), set(sums(made)["r1-train-s2"])
    assert "west" in with_it
    assert "west" not in without
    assert len(with_it - without) == 3


@in_virtual_time
async def test_where_no_masks_were_summed_the_next_sum_is_of_all_others(clock: VirtualClock, tmp_path: Path) -> None:
    """Nobody has a sum with the site whose seed does not open, so there is no difference that would tell of it."""
    async with hub_of(clock, tmp_path, *MANY) as made:
        made.let("west", seals_nothing(TaskKind.TRAIN))
        await completed(made, masked_job(participants=TOLERANT))
    assert {session: names for session, names in sums(made).items() if "train" in session} == {"r1-train-s2": MANY[:-1]}


@in_virtual_time
async def test_ring_arithmetic_without_masks_has_nothing_to_hide(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *MANY) as made:
        made.let("west", tampers(TaskKind.TRAIN))
        await completed(made, masked_job("ring", participants=TOLERANT))
    assert made.events("round-finished")[0].data["participants"] == list(MANY[:-1])
