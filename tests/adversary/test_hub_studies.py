"""A hub that announces a ring of its own choice for a study's counts, and sees of one cohort whether it refuses.

With a bound below the largest count a cohort would refuse where that lies beyond: a bisection of the bound tells the
count, of each SNP and group, of one cohort, without any sum. A setting that no site reads makes each question another
work.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adversary import workers
from adversary.conftest import Attacked
from adversary.lying_hub import LyingHub, refusals
from hanse_datapod.data.settings import DataSettings
from hanse_fabric.messages import ObjectRef, Outcome, RingPlan, TaskKind
from hanse_fabric.messages.masking import Ring
from hanse_fabric.tensors.file import decode_tensors, encode_tensors, layout_like
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_genomics.arrays import Arrays
from hanse_genomics.files import text
from hanse_genomics.files.snps import CommonSnps
from hanse_genomics.simulation import CohortPlan
from hanse_genomics.site import STEPS, SiteStudy
from hanse_learning.binding import task_seed
from hanse_privacy.joint import Computation
from hanse_privacy.ring import files as ring_files
from hanse_privacy.ring.codec import encode
from hanse_privacy.ring.limbs import ring as people_ring
from hanse_schemas.schema import GenotypesSchema
from hanse_schemas.study import Study
from hanse_workflows.joint_sums import plan_of
from simulation.cohorts import PLAN, Files

TARGET, SNP = 3, 7
STUDY = {"test": "chi_square"}
RULES: dict[str, Any] = {"workflows": ["association_study"]}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    cohorts = (*PLAN.cohorts, CohortPlan("west", 30, 45))
    return Files.written(tmp_path_factory.mktemp("cohorts"), replace(PLAN, cohorts=cohorts))


@pytest.fixture
def cohorts(attacked: Attacked, files: Files) -> Any:
    """`attacked` on sites with genotypes."""
    prefixes = tuple(files.prefixes.values())

    def worker(index: int) -> Any:
        return workers.on(DataSettings(train=Path(prefixes[index]), kind="plink"))

    return lambda: attacked(sites=len(prefixes), worker=worker, schema=GenotypesSchema(kind="genotypes"), **RULES)


def common(listed: Arrays) -> CommonSnps:
    """The SNPs that a cohort has said that it has, as if all had them."""
    low, high = (text.unpack(listed[name]) for name in ("low", "high"))
    pairs = listed["pair"].tolist()
    return CommonSnps(
        listed["chromosome"], listed["position"], text.unpack(listed["name"]), [low[pair] for pair in pairs],
        [high[pair] for pair in pairs],
    )  # fmt: skip


def sent(arrays: Arrays) -> ObjectRef:
    return ref_of_bytes(encode_tensors(layout_like(arrays), arrays), inline=True)


async def asked(
    hub: LyingHub, number: int, step: str, plan: RingPlan | None, settings: dict[str, Any] | None = None, **fields: Any
) -> Any:
    """What the target answers to a step of a study."""
    site = hub.stage.names[TARGET]
    config = {"study": STUDY, "step": step, "settings": settings or {}}
    masked = {"seed": task_seed(TaskKind.STUDY, 7, "", site)} if plan is not None else {"mode": None}
    task = hub.task(
        site, f"s{number}", kind=TaskKind.STUDY, plan=plan, config=config, round=0, workflow="association_study",
        **masked, **fields,
    )  # fmt: skip
    return (await hub.ask(task))[site]


async def opened(hub: LyingHub) -> None:
    """The target has told its SNPs, and has learnt again where they lie."""
    result = await asked(hub, 1, "open", None)
    snps = common(decode_tensors(await hub.file(result, result.update))[1])
    people = people_ring(len(hub.stage.names))
    plan = plan_of(Computation("samples", "samples", rings={"people": people, "swapped": people}), len(hub.stage.names))
    result = await asked(hub, 2, "samples", plan, extras={"snps": sent(snps.arrays())})
    assert not refusals({"": result})


async def largest_count(hub: LyingHub) -> tuple[int, int]:
    """The largest of the target's genotype counts of one SNP among cases, by where it refuses (1 where it never does),
    and how many questions that took."""
    await opened(hub)
    low, high, number = 1, 64, 3
    while low < high:
        bound = (low + high) // 2
        ring = Ring(bits=32, fraction=0, bound=bound)
        plan = plan_of(Computation("counts", "chi_square", rings={"counts": ring}), len(hub.stage.names))
        settings = {"start": SNP, "stop": SNP + 1, "groups": ["case"], "another": number}
        result = await asked(hub, number, "chi_square", plan, settings)
        low, high = (low, bound) if result.outcome is Outcome.DONE else (bound + 1, high)
        number += 1
    return low, number - 3


def true(files: Files, folder: Path) -> int:
    study = Study.model_validate(STUDY)
    site = SiteStudy(files.cohort(tuple(files.prefixes)[TARGET], study), study, folder)
    STEPS["samples"](site, {}, {"snps": common(STEPS["open"](site, {}, {})).arrays()})
    return int(STEPS["chi_square"](site, {"start": SNP, "stop": SNP + 1, "groups": ["case"]}, {})["counts"].max())


async def test_no_bound_of_a_ring_tells_a_cohorts_counts(cohorts: Any) -> None:
    async with cohorts() as hub:
        assert await largest_count(hub) == (1, 6)  # whatever is asked is answered


@pytest.mark.control("test_no_bound_of_a_ring_tells_a_cohorts_counts")
async def test_control_where_a_cohort_refuses_what_lies_beyond_a_bound_its_count_is_read(
    cohorts: Any, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(*args: Any, **how: Any) -> Any:
        return encode(*args, **how | {"wrap": False, "refuse": True})

    monkeypatch.setattr(ring_files, "encode", refusing)
    async with cohorts() as hub:
        found, questions = await largest_count(hub)
    assert found == true(files, tmp_path / "own") > 5
    assert questions == 6
