"""A site that answers with as many metrics as a message holds, in each round: what a run keeps of its answers stays in
its journal for good, in room that all projects share, and is told to all who watch.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from adversary.in_memory import tmp_path
from adversary.site_league import presence
from clocks import in_virtual_time
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import ObjectRef, Presence, TaskKind
from hanse_fabric.messages.tasks import MOST_WORDS
from hanse_fabric.subjects import EVENT, JOURNAL
from hanse_fabric.virtual_time import VirtualClock
from hanse_workflows import answers
from hanse_workflows.outcomes import Failure
from simulation.faults import Fault, tells
from simulation.stories import completed, hub_of, job_of
from unit.workflows.test_answers import result, terms

__all__ = ["tmp_path"]
HONEST, BYTES = 30_000, 110_000


def flood() -> dict[str, float]:
    """Metrics that no compression makes few."""
    draw = random.Random(1)
    return {f"{draw.getrandbits(128):032x}": draw.random() for _ in range(BYTES // 55)}


FLOODS = {
    "metrics": tells(TaskKind.TRAIN, metrics=flood()),
    "info": tells(TaskKind.TRAIN, info=flood()),
    "of an evaluation": tells(TaskKind.EVALUATE, metrics=flood()),
    "code": Fault((TaskKind.TRAIN,), instead={"outcome": "failed", "code": "".join(flood()), "reason": "x"}),
}


async def kept(clock: VirtualClock, folder: Path, fault: Fault) -> int:
    """Bytes that a run of two rounds leaves in its journal and in its events."""
    async with hub_of(clock, folder, "east", "north", "south") as made:
        made.let("south", fault)
        await completed(made, job_of(participants={"quorum": 0.6, "grace": 0.1}))
        return sum(len(message.data) for row in (JOURNAL, EVENT) for message in made.said(row))


@pytest.mark.parametrize("fault", FLOODS.values(), ids=list(FLOODS))
@in_virtual_time
async def test_a_site_fills_no_journal_and_no_events_with_what_it_tells(
    clock: VirtualClock, tmp_path: Path, fault: Fault
) -> None:
    assert await kept(clock, tmp_path, fault) < HONEST


@pytest.mark.parametrize("fault", [FLOODS["metrics"], FLOODS["of an evaluation"]], ids=["metrics", "of an evaluation"])
@pytest.mark.control("test_a_site_fills_no_journal_and_no_events_with_what_it_tells")
@in_virtual_time
async def test_control_where_any_number_of_metrics_is_taken_each_round_has_all_of_them(
    clock: VirtualClock, tmp_path: Path, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "MOST_NUMBERS", 10**9)
    monkeypatch.setattr(answers, "MOST_LETTERS", 10**9)
    assert await kept(clock, tmp_path, fault) > 3 * BYTES


LEAVES = ("c" * 64,) * 1000
LONG, SMALL = ObjectRef(digest="a" * 64, size=100, leaves=LEAVES), ObjectRef(digest="a" * 64, size=1)


@pytest.mark.parametrize(
    "given",
    [
        {"update": LONG}, {"extras": {"control": LONG}}, {"extras": {"c" * 100_000: SMALL}},
        {"extras": {str(number): SMALL for number in range(500)}},
    ],
    ids=["leaves", "leaves of an extra", "name", "extras"],
)  # fmt: skip
@pytest.mark.no_attack("the same, answer by answer")
def test_an_answer_names_no_more_than_it_has(given: dict[str, object]) -> None:
    judged = answers.judge(result(examples=5, **given), terms())
    assert isinstance(judged, Failure)
    assert len(judged.model_dump_json()) < 1000


WORDS = {"device": "x" * 100_000, "version": "1" * 100_000, "working_on": "r" * 100_000}


@pytest.mark.parametrize("name", WORDS)
@pytest.mark.no_attack("a message, as doors read it")
def test_a_sign_of_life_says_little_of_its_site(name: str) -> None:
    """The hub holds it in memory, and shows it to whoever looks at the project's sites."""
    Presence.decode(presence())
    with pytest.raises(HanseError, match=name):
        Presence.decode(presence(**{name: WORDS[name]}))


@pytest.mark.no_attack("an honest site with many pools of workers")
def test_a_site_with_many_pools_shows_life_though_their_names_are_long() -> None:
    pools = "; ".join(["cpu", *(f"pool {name}: gpu, 80 GiB, labels a, b, c: 3 at work" for name in range(40))])
    told = Presence.decode(presence(device=pools)).device
    assert told.startswith("cpu; pool 0")
    assert len(told) == MOST_WORDS
