"""How a study runs: its chunks, its refusals, and that neither cutting nor order changes a bit."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_genomics import groups, rings
from hanse_genomics.arrays import Arrays
from hanse_genomics.bounded import run_bounded
from hanse_genomics.files import text
from hanse_genomics.files.cohort import open_cohort
from hanse_genomics.reasons import WORDS, Reason, words
from hanse_genomics.rehearsal import RehearsalVerbs, rehearse
from hanse_genomics.study import conduct, cut
from hanse_privacy.joint import Computation, JointOutcome
from hanse_privacy.ring.plan import capacity, largest_sum
from hanse_schemas.study import Study
from plink_files import random_copies, write_plink
from plink_oracle import Pool, beside, federated, make_pool

CHROMOSOMES = ("1", "1", "2", "23", "26")


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    return make_pool(tmp_path_factory.mktemp("pool"), snps=900, samples=260, seed=8, chromosomes=CHROMOSOMES)


@pytest.fixture(scope="module")
def cohorts(pool: Pool, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return pool.cohorts(tmp_path_factory.mktemp("cohorts"), 3)


def study(test: str, **more: object) -> Study:
    covariates = ("AGE",) if test in ("linear", "logistic") else ()
    phenotype = "TRAIT" if test == "linear" else "CASE"
    return Study.model_validate({"test": test, "phenotype": phenotype, "covariates": covariates, **more})


def bits(results: Arrays) -> dict[str, bytes]:
    return {name: np.ascontiguousarray(values).tobytes() for name, values in results.items()}


def verbs_of(asked: Study, cohorts: Mapping[str, Path], folder: Path) -> RehearsalVerbs:
    opened = {name: open_cohort(prefix, asked, *beside(prefix)) for name, prefix in cohorts.items()}
    return RehearsalVerbs(opened, asked, folder)


@pytest.mark.parametrize("test", ["chi_square", "trend", "linear", "logistic"])
def test_results_are_the_same_bits_however_the_study_is_cut_and_the_cohorts_are_called(
    cohorts: dict[str, Path], tmp_path: Path, test: str
) -> None:
    more: dict[str, object] = {"firth": "fallback"} if test == "logistic" else {}
    whole = federated(study(test, **more), cohorts, tmp_path / "whole").results
    small = study(test, chunk=1, in_flight=3, **more)
    renamed = dict(zip(("z", "y", "x"), cohorts.values(), strict=True))
    assert small.chunk_snps == 256
    assert bits(federated(small, renamed, tmp_path / "small").results) == bits(whole)


def test_a_replay_asks_for_the_same_computations(cohorts: dict[str, Path], tmp_path: Path) -> None:
    asked = study("logistic", chunk=256, in_flight=2)
    keys = []
    for time in range(2):
        verbs = verbs_of(asked, cohorts, tmp_path / str(time))
        asyncio.run(conduct(verbs, asked))
        keys.append({one.key: (one.function, dict(one.settings), one.rings) for one in verbs.asked})
        assert len(verbs.asked) == len(keys[-1]), "a key was used twice"
    assert keys[0] == keys[1]
    assert all(key == key.lower() and key.replace("-", "").isalnum() for key in keys[0])


def test_only_the_list_of_snps_crosses_unmasked(cohorts: dict[str, Path], tmp_path: Path) -> None:
    asked = study("logistic", firth="fallback")
    verbs = verbs_of(asked, cohorts, tmp_path)
    asyncio.run(conduct(verbs, asked))
    assert {one.function for one in verbs.asked if one.sites and one.rings is None} == {"open"}
    assert [one.function for one in verbs.asked if not one.sites] == ["ready", "collect"]


def test_progress_is_told_chunk_by_chunk(cohorts: dict[str, Path], tmp_path: Path) -> None:
    asked = study("chi_square", chunk=256)
    verbs = verbs_of(asked, cohorts, tmp_path)
    asyncio.run(conduct(verbs, asked))
    done = [data["done"] for kind, about, data in verbs.notes if (kind, about) == ("progress", "chunks")]
    assert done == list(range(1, len(done) + 1))
    assert len(done) == 5


def test_a_worker_that_starts_anew_goes_on_with_what_is_in_the_sites_folder(
    cohorts: dict[str, Path], tmp_path: Path
) -> None:
    asked = study("linear", chunk=256, in_flight=1)

    class Forgetful(RehearsalVerbs):
        async def compute(self, asked: Computation) -> JointOutcome:
            for site in self._sites.values():
                site.cache.clear()
            return await super().compute(asked)

    opened = {name: open_cohort(prefix, asked, *beside(prefix)) for name, prefix in cohorts.items()}
    made = asyncio.run(conduct(Forgetful(opened, asked, tmp_path / "a"), asked))
    assert bits(made["results"]) == bits(rehearse(asked, opened, tmp_path / "b").results)


def test_a_site_whose_folder_is_gone_says_so(cohorts: dict[str, Path], tmp_path: Path) -> None:
    asked = study("chi_square")

    class Emptied(RehearsalVerbs):
        async def compute(self, asked: Computation) -> JointOutcome:
            if asked.function == "chi_square":
                for site in self._sites.values():
                    site.cache.clear()
                    (site.state / "matched.npz").unlink(missing_ok=True)
            return await super().compute(asked)

    opened = {name: open_cohort(prefix, asked, *beside(prefix)) for name, prefix in cohorts.items()}
    with pytest.raises(HanseError, match="site0: the site's folder of this study is gone"):
        asyncio.run(conduct(Emptied(opened, asked, tmp_path), asked))


def test_two_cohorts_are_refused_before_anything_is_asked_of_them(cohorts: dict[str, Path], tmp_path: Path) -> None:
    asked = study("chi_square")
    two = {name: prefix for name, prefix in cohorts.items() if name != "site0"}
    verbs = verbs_of(asked, two, tmp_path)
    with pytest.raises(HanseError, match="cohorts: 2, expected at least 3") as caught:
        asyncio.run(conduct(verbs, asked))
    assert caught.value.code is ErrorCode.FORBIDDEN
    assert verbs.asked == []
    assert federated(study("chi_square", few_cohorts=True), two, tmp_path / "allowed").summary["snps"]["tested"]


def small_cohorts(
    folder: Path, statuses: list[list[int]], covariates: list[list[tuple[float, ...]]]
) -> dict[str, Path]:
    """Cohorts of one SNP each, with columns A, B."""

    made = {}
    for number, (status, values) in enumerate(zip(statuses, covariates, strict=True)):
        people = [f"F{number} I{at} 0 0 {1 + at % 2} {one}" for at, one in enumerate(status)]
        prefix = write_plink(
            folder / f"c{number}", random_copies(3, len(people), seed=number, missing=0), people=people
        )
        lines = [f"F{number} I{at} {' '.join(map(str, row))}" for at, row in enumerate(values)]
        Path(f"{prefix}.cov").write_text("\n".join(["FID IID A B", *lines]) + "\n")
        made[f"c{number}"] = prefix
    return made


def mixed(count: int) -> list[int]:
    return [1 + at % 2 for at in range(count)]


def values(count: int, seed: int) -> list[tuple[float, ...]]:
    return [tuple(row) for row in np.random.default_rng(seed).normal(size=(count, 2)).round(4).tolist()]


def test_samples_that_barely_exceed_the_predictors_are_refused(tmp_path: Path) -> None:
    cohorts = small_cohorts(tmp_path, [mixed(8)] * 3, [values(8, seed) for seed in range(3)])
    asked = Study(test="logistic", covariates=("A", "B"))
    with pytest.raises(
        HanseError, match=r"samples: 24 of all cohorts .* expected at least 25 for 3 predictors"
    ) as caught:
        federated(asked, cohorts, tmp_path / "state")
    assert caught.value.code is ErrorCode.FORBIDDEN
    assert federated(asked.model_copy(update={"few_samples": True}), cohorts, tmp_path / "state").results


def test_a_cohort_with_no_cases_takes_part(tmp_path: Path) -> None:
    statuses = [[1] * 30, mixed(30), [2] * 20]
    cohorts = small_cohorts(tmp_path, statuses, [values(len(status), 1) for status in statuses])
    for test in ("chi_square", "logistic"):
        made = federated(Study.model_validate({"test": test}), cohorts, tmp_path / test)
        assert made.summary["samples"]["cases"] == 35
        assert made.results["reason"].tolist() == [0, 0, 0]


def test_a_study_with_no_cases_at_all_is_refused(tmp_path: Path) -> None:
    cohorts = small_cohorts(tmp_path, [[1] * 12] * 3, [values(12, 1)] * 3)
    with pytest.raises(HanseError, match="phenotype: there is no case among the 36 samples of all cohorts"):
        federated(Study(test="chi_square"), cohorts, tmp_path / "state")


def test_a_covariate_that_is_constant_everywhere_is_refused_by_name(tmp_path: Path) -> None:
    constant = [[(a, 3.7) for a, _ in values(20, seed)] for seed in range(3)]
    cohorts = small_cohorts(tmp_path, [mixed(20)] * 3, constant)
    with pytest.raises(HanseError, match=r"covariate B is the same for all 60 samples .* 3\.7"):
        federated(Study(test="logistic", covariates=("A", "B")), cohorts, tmp_path / "state")


def test_a_covariate_that_is_finer_than_sums_is_refused_as_that_and_not_as_constant(tmp_path: Path) -> None:
    tiny = [[(a, b * 1e-300) for a, b in values(20, seed)] for seed in range(3)]
    cohorts = small_cohorts(tmp_path, [mixed(20)] * 3, tiny)
    with pytest.raises(
        HanseError, match=r"covariate B differs by less than 1e-13, or not at all, .* not finer"
    ) as caught:
        federated(Study(test="logistic", covariates=("A", "B")), cohorts, tmp_path / "state")
    assert "another unit" in caught.value.hint


def test_a_covariate_that_another_explains_everywhere_is_refused_by_name(tmp_path: Path) -> None:
    twice = [[(a, round(2 * a + 1, 6)) for a, _ in values(20, seed)] for seed in range(3)]
    cohorts = small_cohorts(tmp_path, [mixed(20)] * 3, twice)
    with pytest.raises(HanseError, match="covariate B is explained by covariate A without error"):
        federated(Study(test="logistic", covariates=("A", "B")), cohorts, tmp_path / "state")


def test_covariates_that_are_collinear_or_constant_in_one_cohort_alone_are_fine(tmp_path: Path) -> None:
    columns = [values(20, 1), [(a, 2 * a) for a, _ in values(20, 2)], [(a, 5.0) for a, _ in values(20, 3)]]
    cohorts = small_cohorts(tmp_path, [mixed(20)] * 3, columns)
    made = federated(Study(test="logistic", covariates=("A", "B")), cohorts, tmp_path / "state")
    assert made.results["reason"].tolist() == [0, 0, 0]


def test_covariates_above_the_variance_inflation_factor_are_refused_by_name(tmp_path: Path) -> None:
    near = [[(a, round(a + 0.05 * b, 6)) for a, b in values(20, seed)] for seed in range(3)]
    cohorts = small_cohorts(tmp_path, [mixed(20)] * 3, near)
    with pytest.raises(HanseError, match=r"covariate [AB]: its variance inflation factor is"):
        federated(Study(test="logistic", covariates=("A", "B")), cohorts, tmp_path / "state")


def test_covariates_that_tell_cases_from_controls_are_refused(tmp_path: Path) -> None:
    telling = [[(float(status), b) for status, (_, b) in zip(mixed(20), values(20, s), strict=True)] for s in range(3)]
    cohorts = small_cohorts(tmp_path, [mixed(20)] * 3, telling)
    with pytest.raises(HanseError, match="tell cases from controls without error"):
        federated(Study(test="logistic", covariates=("A", "B")), cohorts, tmp_path / "state")


def test_an_error_at_a_site_names_the_site(cohorts: dict[str, Path], tmp_path: Path) -> None:
    asked = study("chi_square")
    verbs = verbs_of(asked, cohorts, tmp_path / "state")
    verbs._sites["site1"].cohort.bed.path.touch()
    with pytest.raises(HanseError, match=r"site1: cohort1\.bed: was changed while the study ran"):
        asyncio.run(conduct(verbs, asked))


def test_snps_are_put_in_genome_order_with_their_names(cohorts: dict[str, Path], pool: Pool, tmp_path: Path) -> None:
    results = federated(study("trend"), cohorts, tmp_path).results
    assert text.unpack(results["name"]) == [snp[2] for snp in pool.snps]
    assert {int(code) for code in results["reason"]} <= set(WORDS)
    assert words(99) == "reason 99"
    haploid = results["reason"][np.flatnonzero(results["chromosome"] == 26)]
    assert set(haploid.tolist()) == {Reason.HAPLOID, Reason.MONOMORPHIC}


def test_chunks_are_whole_tiles_from_where_a_ploidy_begins() -> None:
    spans = [[1, 0, 300], [2, 300, 700], [23, 700, 760], [25, 760, 800]]
    made = cut(spans, 512)
    assert [(one.key, one.start, one.stop, one.ploidy) for one in made] == [
        ("c00000", 0, 512, "diploid"),
        ("c00001", 512, 700, "diploid"),
        ("c00002", 700, 760, "x"),
        ("c00003", 760, 800, "diploid"),
    ]


def test_groups_are_no_more_than_the_test_needs() -> None:
    sizes = dict.fromkeys(groups.ALL, 0)
    for name in ("all", "founder", "complete"):
        sizes[f"{name}/male"] = 10
    for name in ("case", "founder_case", "complete_case"):
        sizes[f"{name}/male"] = 4
    for name in ("control", "founder_control", "complete_control"):
        sizes[f"{name}/male"] = 6
    chi_square, linear = Study(test="chi_square"), Study(test="linear")
    assert groups.needed(chi_square, sizes, "diploid") == ["case", "control"]
    assert groups.needed(chi_square, sizes, "x") == ["case/male", "case/rest", "control/male", "control/rest"]
    assert groups.needed(linear, sizes, "diploid") == ["all"]
    assert groups.needed(linear, {**sizes, "complete/male": 9, "founder/male": 8}, "y") == [
        "all/male", "founder/male", "complete/male",
    ]  # fmt: skip


@pytest.mark.parametrize("cohorts", [1, 3, 50])
def test_no_ring_can_overflow(cohorts: int) -> None:
    for ring in (
        rings.counts(5343, cohorts), rings.counts(10**9, cohorts), rings.people(cohorts), rings.limbs(cohorts),
        rings.reals(4.0 * 135_615, cohorts), rings.coarse(4.0 * 5343, cohorts), rings.coarse(1e9, cohorts),
    ):  # fmt: skip
        assert largest_sum(ring, cohorts) <= capacity(ring.bits)
    assert rings.counts(5343, cohorts).bits == 32
    assert rings.reals(4.0 * 5343, 3).fraction >= 44
    assert (rings.coarse(4.0 * 5343, cohorts).bits, rings.coarse(1e9, 50).bits) == (32, 64)


def test_the_first_failure_ends_all_others() -> None:
    ended = []

    async def one(number: int) -> int:
        try:
            if number == 2:
                raise HanseError(ErrorCode.INVALID_INPUT, "the second fails")
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append(number)
            raise
        return number

    async def run() -> None:
        await run_bounded([lambda number=number: one(number) for number in range(5)], 3)

    with pytest.raises(HanseError, match="the second fails"):
        asyncio.run(asyncio.wait_for(run(), 30))
    assert set(ended) >= {0, 1}


def test_no_more_are_in_flight_than_allowed_and_results_keep_their_order() -> None:
    now, most = 0, 0

    async def one(number: int) -> int:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        return number

    async def run() -> list[Any]:
        return await run_bounded([lambda number=number: one(number) for number in range(20)], 3)

    assert asyncio.run(run()) == list(range(20))
    assert most == 3


def test_the_conductor_needs_no_numpy() -> None:
    code = "import sys, hanse_genomics.study; sys.exit('numpy' in sys.modules or 'scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_a_site_needs_no_scipy() -> None:
    code = "import sys, hanse_genomics.site; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize("test", ["linear", "logistic"])
def test_a_cohort_in_which_nobody_has_every_covariate_adds_nothing_and_does_no_harm(tmp_path: Path, test: str) -> None:
    rng = np.random.default_rng(0)
    statuses = [mixed(30) if test == "logistic" else rng.normal(size=30).round(5).tolist() for _ in range(4)]
    missing = [(float("nan"), b) for _, b in values(30, 3)]
    cohorts = small_cohorts(tmp_path, statuses, [values(30, 1), values(30, 2), values(30, 4), missing])
    asked = Study.model_validate({"test": test, "covariates": ["A", "B"]})
    made = federated(asked, cohorts, tmp_path / "four")
    assert made.summary["samples"] | {"all": 120, "tested": 90} == made.summary["samples"]
    without = federated(asked, {name: cohorts[name] for name in ("c0", "c1", "c2")}, tmp_path / "three")
    for column in ("nmiss", "beta", "se", "p"):
        # Its genotypes count where A1 is chosen, so that signs may differ.
        found, expected = (np.abs(one.results[column]).tolist() for one in (made, without))
        assert found == pytest.approx(expected, rel=1e-9)
