"""What a reduction's fingerprint is taken of, and who counts as summed where no sum was unmasked; without a hub."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from hanse_fabric.messages import ObjectRef
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_schemas.job import Job, check_job
from hanse_workflows import Verbs
from hanse_workflows.next_model import SumUnmasking, sum_masked
from hanse_workflows.outcomes import Answer

UPDATE, CONTROL, MODEL = (ref_of_bytes(text) for text in (b"an update", b"a change", b"a model"))
NAMES = ("east", "north", "south")


@dataclass
class Journal:
    """Of the verbs those that a masked sum needs, with no record of the step."""

    binds: bool = True
    project: str = "triage"
    run: str = "a" * 12
    asked: dict[str, Any] = field(default_factory=dict)
    forgotten: list[ObjectRef] = field(default_factory=list)

    @property
    def job(self) -> Job:
        sums = {"mode": "pairwise", "minimum": 3}
        return check_job({"rounds": 1, "model": {"name": "linear"}, "secure_aggregation": sums})

    def phase(self, _name: str, _step: str) -> AbstractContextManager[None]:
        return nullcontext()

    async def once(self, _step: str, asked: dict[str, Any], do: Callable[[], Awaitable[Any]]) -> Any:
        self.asked = dict(asked)
        return await do()

    def forget(self, refs: Iterable[ObjectRef]) -> None:
        self.forgotten.extend(refs)


async def asked_for(run: Journal, unmasking: SumUnmasking, *, changes: tuple[str, ...] = ()) -> tuple[str, ...]:
    async def unmask() -> SumUnmasking:
        return unmasking

    answers = tuple(
        Answer(participant=name, update=UPDATE, extras={"control": CONTROL} if name in changes else {})
        for name in NAMES
    )  # fmt: skip
    summed = await sum_masked(
        cast("Verbs", run), "r1-reduce", round=1, answers=answers, model=MODEL, unmask=unmask, session="r1-train"
    )
    assert summed.tally is None
    assert run.forgotten.count(UPDATE) == len(NAMES), "they are in no sum, and will be in none"
    return summed.participants


@pytest.mark.parametrize(
    ("given", "binds", "summed"), [(True, True, NAMES), (False, True, ()), (True, False, ()), (False, False, ())]
)
async def test_a_sum_counts_as_made_as_soon_as_sites_take_masks_off_it(
    given: bool, binds: bool, summed: tuple[str, ...]
) -> None:
    """A run that began under release 0.1.0 has not recorded it, and goes on as it began."""
    assert await asked_for(Journal(binds=binds), SumUnmasking(None, given=given)) == summed


@pytest.mark.parametrize("changes", [(), ("north",), NAMES])
async def test_a_fingerprint_has_the_extras_of_those_who_sent_some(changes: tuple[str, ...]) -> None:
    """Of those without any it has nothing, as in every release: else a run would not go on after an upgrade."""
    run = Journal()
    await asked_for(run, SumUnmasking(None), changes=changes)
    assert run.asked["changes"] == {name: {"control": CONTROL} for name in changes}
    assert run.asked.keys() == {
        "kind", "round", "updates", "model", "state", "strategy", "plugin", "changes", "session",
    }  # fmt: skip
