"""An owner with an honest hub who makes a study twice: with all cohorts, and without one and cut into other chunks.

Another chunk is another work, for its sums are over other SNPs. So it is the members that stay the same: for studies
they are fixed where policies require masks.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from adversary.in_memory import tmp_path
from clocks import in_virtual_time
from hanse_compensator.memory import Memory
from hanse_fabric.tensors.file import decode_tensors
from hanse_fabric.virtual_time import VirtualClock
from hanse_genomics.rehearsal import rehearse
from hanse_genomics.simulation import CohortPlan
from hanse_schemas.study import Study
from simulation.cohorts import COHORTS, PLAN, SCHEMA, Files
from simulation.league import League
from simulation.stories import hub_of

__all__ = ["tmp_path"]
TARGET = "west"
FOUR = (*COHORTS, TARGET)
ALL, OTHER_CHUNKS = 256, 512
Arrays = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    cohorts = (*PLAN.cohorts, CohortPlan(TARGET, 30, 45))
    return Files.written(tmp_path_factory.mktemp("cohorts"), replace(PLAN, cohorts=cohorts))


@pytest.fixture(scope="module")
def own(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Arrays:
    """The results of the target's people alone, which nobody may know."""
    study = Study.model_validate({"test": "chi_square", "few_cohorts": True})
    return rehearse(study, {TARGET: files.cohort(TARGET, study)}, tmp_path_factory.mktemp("own")).results


async def studied(made: League, run: str, chunk: int) -> tuple[Arrays | None, str]:
    await made.submit(
        run, workflow="association_study", study={"test": "chi_square", "chunk": chunk},
        secure_aggregation={"mode": "compensator"}, participants={"minimum": 3, "deadline": 30.0, "patience": 30.0},
    )  # fmt: skip
    record = await made.ended(run)
    if record.state != "completed":
        return None, record.reason
    return decode_tensors(made.store.get(str(record.outputs["results"]["key"]), limit=1 << 24))[1], ""


async def twice(
    clock: VirtualClock, folder: Path, files: Files, *, gone: str | None = TARGET, again: int = OTHER_CHUNKS
) -> tuple[Arrays | None, Arrays | None, str]:
    """The results of both studies, the second without one cohort; where that was refused, why."""
    there: dict[str, Any] = {"worker": files.worker, "schema": SCHEMA}
    async with hub_of(clock, folder, *FOUR, **there) as made:
        masking = made.policy.masking.model_copy(update={"required": True})
        made.policy = made.policy.model_copy(update={"masking": masking})
        for name in FOUR:
            await made.restart(name)
        whole, why = await studied(made, "run000000001", ALL)
        assert whole is not None, why
        if gone is not None:
            await made.processes[gone].crash()
            await clock.sleep(600)
        rest, why = await studied(made, "run000000002", again)
        return whole, rest, why


@pytest.mark.parametrize("again", [ALL, OTHER_CHUNKS])
@in_virtual_time
async def test_an_honest_study_is_made_again_by_the_same_cohorts_to_the_same_bytes(
    clock: VirtualClock, tmp_path: Path, files: Files, again: int
) -> None:
    with threadpool_limits(1):
        whole, rest, why = await twice(clock, tmp_path, files, gone=None, again=again)
    assert whole is not None
    assert rest is not None, why
    assert {name: array.tobytes() for name, array in rest.items()} == {
        name: array.tobytes() for name, array in whole.items()
    }


@in_virtual_time
async def test_a_study_is_not_made_again_without_one_cohort_however_it_is_cut(
    clock: VirtualClock, tmp_path: Path, files: Files
) -> None:
    with threadpool_limits(1):
        _, rest, why = await twice(clock, tmp_path, files)
    assert rest is None
    assert "1 fewer than the last set's" in why


@in_virtual_time
@pytest.mark.control("test_a_study_is_not_made_again_without_one_cohort_however_it_is_cut")
async def test_control_where_nobody_remembers_two_studies_tell_one_cohorts_counts(
    clock: VirtualClock, tmp_path: Path, files: Files, own: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def claims_nothing(self: Memory, claim: object) -> None:
        """In place of the compensator's memory of works and of fixed members."""

    monkeypatch.setattr(Memory, "claim_set", claims_nothing)
    with threadpool_limits(1):
        whole, rest, why = await twice(clock, tmp_path, files)
    assert rest is not None, why
    assert whole is not None
    same = (whole["minor"] == rest["minor"]) & (whole["minor"] == own["minor"])
    assert same.sum() > 100
    read = whole["counts"] - rest["counts"]  # (SNPs, 4) alleles: of cases and controls, the minor and the other
    assert np.array_equal(read[same], own["counts"][same])
