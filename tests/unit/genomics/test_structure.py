"""LD pruning and principal components of three cohorts: as PLINK prunes the pool, as the pool's SVD has them."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tracemalloc
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_genomics import rings
from hanse_genomics.files import Cohort, CommonSnps, open_cohort
from hanse_genomics.genotypes import dosages, missing
from hanse_genomics.rehearsal import RehearsalVerbs
from hanse_genomics.simulation import CohortPlan, Simulated, StudyPlan, simulate
from hanse_genomics.structure.conduct import components, remarks
from hanse_genomics.structure.panel import Panel
from hanse_genomics.structure.standardised import image
from hanse_privacy.joint import Computation, Fact
from hanse_schemas.study import QualityControl, Structure, Study

PLAN = StudyPlan(
    snps=1200, cohorts=(CohortPlan("a", 70, 40), CohortPlan("b", 30, 60), CohortPlan("c", 20, 80)), seed=3,
    maf=(0.01, 0.5), linkage=0.7, missing=0.02, populations=3, fst=0.03, case_odds=2.0, swapped=0.3, monomorphic=0.02,
)  # fmt: skip
DATA = Path(__file__).parents[2] / "data"
PLINK = shutil.which("plink1.9")
needs_plink = pytest.mark.skipif(PLINK is None, reason="plink1.9 is not on the PATH")


@dataclass(frozen=True)
class Found:
    facts: Mapping[str, Fact]
    verbs: RehearsalVerbs
    names: list[str]
    loadings: np.ndarray
    scores: dict[str, np.ndarray]


def study_of(*, chunk: int = 16_384, few_samples: bool = True, **structure: Any) -> Study:
    settled = Structure(**{"components": 3, "oversampling": 6, **structure})
    return Study(test="linear", phenotype="TRAIT", structure=settled, chunk=chunk, few_samples=few_samples)


async def find(simulated: Simulated, study: Study, state: Path, names: Mapping[str, str] | None = None) -> Found:
    """Search in a simulated study, whose cohorts may have other names."""
    renamed = names or {name: name for name in simulated.cohorts}
    cohorts = {
        renamed[name]: open_cohort(prefix, study, phenotypes=prefix.with_name(f"{name}.pheno"))
        for name, prefix in simulated.cohorts.items()
    }
    found = await search(cohorts, study, state)
    return replace(found, scores={name: found.scores[renamed[name]] for name in simulated.cohorts})


async def search(cohorts: Mapping[str, Cohort], study: Study, state: Path) -> Found:
    """Run the steps that a study runs before its regressions."""
    verbs = RehearsalVerbs(cohorts, study, state)
    opened = await verbs.compute(Computation("open", "open"))
    snps = opened.outputs["snps"]
    sampled = await verbs.compute(
        Computation(
            "samples",
            "samples",
            to_sites={"snps": snps},
            rings=dict.fromkeys(("people", "swapped"), rings.people(len(cohorts))),
        )
    )
    facts = await components(verbs, study, snps, sampled.facts["spans"], sampled.facts["sizes"])  # type: ignore[arg-type]
    first = next(one for one in verbs.asked if one.key == "structure-round-0001")
    listed = CommonSnps.read(snps).name
    return Found(
        facts, verbs,
        [listed[row] for row in first.to_sites["panel"]["index"].tolist()],
        verbs.asked[-1].to_sites["loadings"]["loadings"],
        {name: np.load(state / name / "components.npy") for name in cohorts},
    )  # fmt: skip


def parents(prefix: Path, every: int) -> None:
    """Give every so many-th person a father and a mother, so that they are no founders."""
    path = prefix.with_name(f"{prefix.name}.fam")
    rows = [line.split() for line in path.read_text().splitlines()]
    for row in rows:
        if int(row[1][1:]) % every == 0:
            row[2:4] = ["P1", "P2"]
    path.write_text("".join(" ".join(row) + "\n" for row in rows))


def standardised(simulated: Simulated, names: list[str], *, founders: bool = False) -> np.ndarray:
    """The pool's standardised genotypes, by the files alone, counted by the alphabetically first allele: (M, N)."""
    assert simulated.pooled is not None
    pool = open_cohort(simulated.pooled, study_of(), phenotypes=simulated.pooled.with_name("pooled.pheno"))
    row = {name: at for at, name in enumerate(pool.snps.name)}
    packed = pool.packed(np.array([row[name] for name in names]))
    genotypes = dosages(packed, pool.samples).copy()
    genotypes[missing(packed, pool.samples)] = np.nan
    of = genotypes[:, pool.founder] if founders else genotypes
    p = np.nanmean(of, axis=1, keepdims=True) / 2
    sign = np.array([[1.0] if pool.snps.a1[row[name]] < pool.snps.a2[row[name]] else [-1.0] for name in names])
    return np.nan_to_num(sign * (genotypes - 2 * p) / np.sqrt(2 * p * (1 - p)))


def sine(one: np.ndarray, other: np.ndarray) -> float:
    """Of the largest angle between the spans of orthonormal columns."""
    return float(np.linalg.norm(one - other @ (other.T @ one), 2))


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    return simulate(PLAN, tmp_path_factory.mktemp("structured"))


@pytest.fixture(scope="module")
def found(simulated: Simulated, tmp_path_factory: pytest.TempPathFactory) -> Found:
    return asyncio.run(find(simulated, study_of(), tmp_path_factory.mktemp("state")))


def plink(prefix: Path | None, out: Path, *options: str) -> None:
    command = [PLINK, "--bfile", prefix, "--autosome", "--allow-no-sex", "--threads", "1", *options, "--out", out]
    subprocess.run([str(word) for word in command], check=True, capture_output=True, timeout=120)


def test_components_span_the_same_subspace_as_those_of_the_pooled_genotypes(simulated: Simulated, found: Found) -> None:
    x = standardised(simulated, found.names)
    left, singular, right = np.linalg.svd(x, full_matrices=False)
    scores = np.concatenate([found.scores[name] for name in simulated.cohorts])
    unit = scores / np.sqrt(len(scores))
    assert np.abs(unit.T @ unit - np.eye(3)).max() < 1e-10
    assert sine(unit, right[:3].T) < 1e-8
    assert sine(found.loadings, left[:, :3]) < 1e-8
    assert found.facts["eigenvalues"] == pytest.approx(singular[:3] ** 2 / len(x), rel=1e-12)
    assert found.facts["converged"]
    assert sine(unit, right[:3].T) <= float(str(found.facts["angle"]))


def test_each_component_has_the_sign_that_makes_its_largest_loading_positive(
    simulated: Simulated, found: Found
) -> None:
    left, _, right = np.linalg.svd(standardised(simulated, found.names), full_matrices=False)
    scores = np.concatenate([found.scores[name] for name in simulated.cohorts])
    signs = np.sign(left[np.abs(left).argmax(axis=0), np.arange(left.shape[1])])[:3]
    assert np.abs(right[:3].T * signs * np.sqrt(len(scores)) - scores).max() < 1e-6


async def test_bits_are_the_same_however_snps_are_chunked_and_cohorts_ordered(
    simulated: Simulated, found: Found, tmp_path: Path
) -> None:
    other = await find(simulated, study_of(chunk=256), tmp_path, {"a": "z", "b": "a", "c": "b"})
    assert other.names == found.names
    assert (other.loadings == found.loadings).all()
    assert all((other.scores[name] == found.scores[name]).all() for name in found.scores)
    keys = {one.key for one in other.verbs.asked}
    assert {"structure-counts-00004", "structure-links-00001"} <= keys


@pytest.mark.parametrize("line", (DATA / "structure" / "hapmap1.prune").read_text().splitlines())
async def test_pruned_list_of_hapmap1_is_that_which_plink_made(line: str, tmp_path: Path) -> None:
    chosen, kept = line.split(":")
    window, step, r2 = chosen.split()
    settled = Structure(components=1, oversampling=2, window=int(window), step=int(step), r2=float(r2), tolerance=0.9)
    study = Study(test="logistic", structure=settled, few_samples=True, few_cohorts=True)
    files = {f"client{at}": DATA / "hapmap1" / f"client{at}" / f"hapmap1_100_{at}" for at in (1, 2)}
    ours = await search({name: open_cohort(prefix, study) for name, prefix in files.items()}, study, tmp_path)
    assert ours.names == kept.split()


@needs_plink
@pytest.mark.parametrize(("window", "step", "r2", "maf"), [(50, 5, 0.2, 0.05), (20, 7, 0.5, 0.0), (100, 1, 0.05, 0.1)])
async def test_pruned_list_is_plinks_on_the_pool_with_parents_and_many_missing_genotypes(
    tmp_path: Path, window: int, step: int, r2: float, maf: float
) -> None:
    plan = StudyPlan(
        snps=900, cohorts=PLAN.cohorts, seed=window, maf=(0.005, 0.5), linkage=0.8, missing=0.08, monomorphic=0.05,
        swapped=0.5, absent=0.0,
    )  # fmt: skip
    made = simulate(plan, tmp_path)
    assert made.pooled is not None
    for prefix in (*made.cohorts.values(), made.pooled):
        parents(prefix, 7)
    study = study_of(window=window, step=step, r2=r2, maf=maf, tolerance=0.9, components=1)
    study = study.model_copy(update={"quality": QualityControl(missing=0.08)})
    ours = await find(made, study, tmp_path / "state")
    rarest = ("--maf", str(maf)) if maf else ()
    plink(made.pooled, tmp_path / "p", "--geno", "0.08", *rarest, "--indep-pairwise", str(window), str(step), str(r2))
    theirs = (tmp_path / "p.prune.in").read_text().split()
    assert ours.names == theirs


@needs_plink
async def test_components_are_plinks_where_no_genotype_is_missing(tmp_path: Path) -> None:
    made = simulate(StudyPlan(snps=600, cohorts=PLAN.cohorts, populations=3, fst=0.05), tmp_path)
    ours = await find(made, study_of(components=2, r2=1), tmp_path / "state")
    (tmp_path / "kept").write_text("\n".join(ours.names))
    plink(made.pooled, tmp_path / "p", "--extract", str(tmp_path / "kept"), "--pca", "2")
    rows = [line.split() for line in (tmp_path / "p.eigenvec").read_text().splitlines()]
    theirs = np.array([[float(word) for word in row[2:]] for row in rows])
    scores = np.concatenate([ours.scores[name] for name in made.cohorts])
    assert sine(scores / np.sqrt(len(scores)), np.linalg.qr(theirs)[0]) < 1e-4  # as many digits as PLINK prints
    eigenvalues = [float(line) for line in (tmp_path / "p.eigenval").read_text().split()]
    assert ours.facts["eigenvalues"] == pytest.approx(eigenvalues, rel=1e-5)


async def test_frequencies_are_those_of_founders_and_components_those_of_everybody(tmp_path: Path) -> None:
    made = simulate(StudyPlan(snps=500, cohorts=PLAN.cohorts, populations=2, fst=0.05, missing=0.05), tmp_path)
    assert made.pooled is not None
    for prefix in (*made.cohorts.values(), made.pooled):
        parents(prefix, 3)
    ours = await find(made, study_of(components=2), tmp_path / "state")
    right = np.linalg.svd(standardised(made, ours.names, founders=True), full_matrices=False)[2]
    scores = np.concatenate([ours.scores[name] for name in made.cohorts])
    assert sine(scores / np.sqrt(len(scores)), right[:2].T) < 1e-8


async def test_a_few_samples_more_than_components_are_refused_unless_the_owner_says_so(
    simulated: Simulated, tmp_path: Path
) -> None:
    study = study_of(components=25, oversampling=10, few_samples=False)
    with pytest.raises(HanseError, match=r"35 directions .* for 300 samples, expected 350"):
        await find(simulated, study, tmp_path)


async def test_the_rounds_end_before_the_hub_knows_more_directions_than_half_the_samples(
    simulated: Simulated, tmp_path: Path
) -> None:
    study = study_of(components=10, oversampling=10, few_samples=False, tolerance=1e-12)
    ended = await find(simulated, study, tmp_path)
    assert ended.facts["columns"] == 140
    assert not ended.facts["converged"]
    assert "after 7 rounds" in remarks(study, ended.facts)[0]
    assert "300 samples allow no more rounds" in remarks(study, ended.facts)[0]


async def test_too_few_snps_for_the_components_are_refused_with_their_number(
    simulated: Simulated, tmp_path: Path
) -> None:
    with pytest.raises(HanseError, match="12, and there are 0 common autosomal SNPs") as refused:
        await find(simulated, study_of(components=12, maf=0.4999), tmp_path)
    assert refused.value.code is ErrorCode.INVALID_INPUT


async def test_a_site_that_lost_its_panel_says_so(simulated: Simulated, tmp_path: Path) -> None:
    made = await find(simulated, study_of(), tmp_path)
    (tmp_path / "b" / "panel.npz").unlink()
    for one in made.verbs._sites.values():
        one.cache.pop("structure-panel")
    with pytest.raises(HanseError, match=r"b: panel.npz: .* not at this site any more") as lost:
        await made.verbs.compute(made.verbs.asked[-1])
    assert lost.value.code is ErrorCode.CONFLICT


async def test_vectors_that_could_leave_the_announced_range_are_refused(simulated: Simulated, tmp_path: Path) -> None:
    made = await find(simulated, study_of(), tmp_path)
    asked = next(one for one in made.verbs.asked if one.key == "structure-round-0002")
    block = asked.to_sites["block"]["block"]
    for wrong in (2 * block, block[:-1], block[:, 0], np.full_like(block, np.nan)):
        with pytest.raises(HanseError, match="a: block: "):
            await made.verbs.compute(replace(asked, to_sites={"block": {"block": wrong}}))


async def test_rounds_end_at_max_iterations_and_the_study_says_so(simulated: Simulated, tmp_path: Path) -> None:
    study = study_of(max_iterations=2)
    ended = await find(simulated, study, tmp_path)
    assert ended.facts["rounds"] == 2
    assert "that is structure.max_iterations" in remarks(study, ended.facts)[0]


def test_genotypes_never_lie_in_memory_as_numbers_all_at_once() -> None:
    snps, samples = 5120, 400
    packed = np.random.default_rng(1).integers(0, 256, (snps, samples // 4), dtype=np.uint8)
    panel = Panel(np.arange(snps), np.ones(snps), np.ones(snps))
    block = np.zeros((snps, 10))
    tracemalloc.start()
    try:
        image(panel, lambda start, stop: packed[start:stop], samples, block)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < snps * samples * 8 / 3


def test_windows_with_gaps_between_them_are_refused() -> None:
    with pytest.raises(ValueError, match=r"structure.step: 6, expected at most structure.window, 5"):
        Structure(window=5, step=6)
