"""A hub that asks the fine questions of protocols about single people.

As the search for quartiles, it finds any cell of a column by its place in the order of all sites' cells: sums of counts
of how numbers begin tell the next bits of whichever is looked for, so the oldest person's age after eight of them, and
after enough runs everybody's. And the histogram of the scores of a linear model of one feature is that feature; coarse
ones of many classes are together as fine, and so are the classes themselves; of a bin of one person the mean
probability is that person's. The cells of concordance say where a model's numbers lie, and so a feature that it says.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from adversary.ages import SCHEMA, on_ages
from adversary.conftest import Attacked
from adversary.lying_hub import LyingHub, Results, refusals
from adversary.stage import Array
from hanse_datapod.home.prefixes import MOST, Prefixes
from hanse_datapod.policy import site_policy
from hanse_datapod.policy.limits import AskingPolicy
from hanse_datapod.policy.questions import Questions
from hanse_fabric.messages import TaskKind
from hanse_fabric.tensors.file import decode_tensors
from hanse_fabric.tensors.words import unpack_words
from hanse_learning.pooled.count import FRACTION_BITS
from hanse_learning.pooled.layout import CALIBRATION_BINS, Counts, told_of
from hanse_learning.pooled.pairs import shape_of
from hanse_learning.pooled.scores import LARGEST, SMALLEST
from hanse_learning.preparation.histograms import keys
from hanse_learning.preparation.order import KEY_BITS, MOST_PREFIXES, number_of
from hanse_learning.preparation.plan import HISTOGRAM, rings
from hanse_privacy.joint import Computation
from hanse_privacy.ring.codec import decode
from hanse_privacy.ring.tally import sum_tallies
from hanse_schemas.metrics import COARSE, FINEST_CELLS, MOST_CLASSES
from hanse_schemas.protocols import asked_by_counts
from hanse_schemas.schema import TabularSchema
from hanse_workflows.joint_sums import plan_of

RULES = [{"name": "age", "kind": "number", "scale": "robust"}]
MANY = SCHEMA.model_copy(update={"classes": MOST_CLASSES})
STAYS = TabularSchema(features=SCHEMA.features, target="died", task="regression", target_bounds=(0.0, 64.0))
SITES, PEOPLE, BITS = 3, 10, 8
PLAN = plan_of(Computation("prepare", "sums", rings=rings((HISTOGRAM,), SITES)), SITES)
AGES = [[20.0 + 1.5 * number + 0.25 * site for number in range(PEOPLE)] for site in range(SITES)]
EVERYBODY = sorted(age for site in AGES for age in site)
IN_PAIRS = [2 * ages[: PEOPLE // 2] for ages in AGES]
"""Other people as old as the first: still more ages than one may look for."""
OPEN = {"asking": {"protocols": ["moments", "quantiles"]}}


@pytest.fixture
def wards(attacked: Attacked, tmp_path: Path) -> Any:
    """`attacked` on sites with tables of ages."""

    def wards(schema: TabularSchema = SCHEMA, ages: list[list[float]] = AGES, **rules: Any) -> Any:
        return attacked(sites=SITES, worker=on_ages(tmp_path, ages), schema=schema, **rules)

    return wards


async def asked_to_count(
    hub: LyingHub, names: list[str], number: int, run: int, depth: int, prefixes: list[int]
) -> Results:
    """Answers of sites that are asked for (prefixes, 2^BITS) counts of their cells."""
    session, name = f"s{number}", f"run{run:09}"
    config = {"prepare": RULES, "quantiles": {"depth": depth, "bits": BITS, "prefixes": {"age": prefixes}}}
    return await hub.ask(
        *(hub.task(site, session, kind=TaskKind.PREPARE, plan=PLAN, run=name, config=config, round=0) for site in names)
    )


async def counts(hub: LyingHub, number: int, run: int, depth: int, prefixes: list[int]) -> tuple[Array | None, str]:
    """(prefixes, 2^BITS) counts of all sites' cells; or why there are none."""
    results = await asked_to_count(hub, hub.stage.names, number, run, depth, prefixes)
    if refusals(results):
        return None, "; ".join(refusals(results).values())
    answer = await hub.ask_masks(results, f"s{number}", run=f"run{run:09}")
    if answer.sum is None:
        return None, answer.reason
    files = [decode_tensors(await hub.file(result, result.update))[1][HISTOGRAM].ravel() for result in results.values()]
    total = np.sum(files, axis=0, dtype=files[0].dtype) - await hub.masks(answer)
    return decode(total, PLAN.entries[HISTOGRAM]).reshape(len(prefixes), -1), ""


async def oldest(hub: LyingHub) -> tuple[float | None, str]:
    """The largest cell of all sites, looked for in one run."""
    prefix = 0
    for depth in range(0, KEY_BITS, BITS):
        told, why = await counts(hub, depth, 1, depth, [prefix])
        if told is None:
            return None, why
        prefix = prefix << BITS | int(np.flatnonzero(told[0])[-1])
    return number_of(prefix), ""


async def everybodys(hub: LyingHub) -> tuple[list[float], str]:
    """All cells of all sites, each looked for in as many runs as it takes; or why some are not found."""
    found, number = [0], 0
    for depth in range(0, KEY_BITS, BITS):
        longer = []
        for at in range(0, len(found), MOST_PREFIXES):
            asked, number = sorted(found[at : at + MOST_PREFIXES]), number + 1
            told, why = await counts(hub, number, 100 + number, depth, asked)
            if told is None:
                return [], why
            longer += [
                prefix << BITS | int(digit) for prefix, row in zip(asked, told, strict=True)
                for digit in np.flatnonzero(row)
            ]  # fmt: skip
        found = longer
    return sorted(number_of(prefix) for prefix in found), ""


async def test_where_quantiles_are_closed_no_person_is_the_oldest(wards: Any) -> None:
    async with wards() as hub:
        age, why = await oldest(hub)
        assert age is None
        assert "asking.protocols: quantiles" in why


@pytest.mark.control("test_where_quantiles_are_closed_no_person_is_the_oldest")
async def test_control_where_the_site_answers_whoever_asks_the_oldest_persons_age_is_read(
    wards: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AskingPolicy, "check_protocols", lambda *_, **__: None)
    async with wards() as hub:
        assert await oldest(hub) == (EVERYBODY[-1], "")


async def test_where_they_are_open_a_site_is_not_asked_for_everybody_in_however_many_runs(wards: Any) -> None:
    async with wards(ages=IN_PAIRS, **OPEN) as hub:
        ages, why = await everybodys(hub)
        assert ages == []
        assert "asking.protocols: quantiles, of other cells than were looked for before is asked" in why
        for site in hub.stage.sites.values():
            await site.stop()
            await site.start()
        told, why = await counts(hub, 9999, 9999, 16, list(range(MOST_PREFIXES)))
        assert told is None, "a restart forgets nothing"
        assert "of other cells" in why


@pytest.mark.control("test_where_they_are_open_a_site_is_not_asked_for_everybody_in_however_many_runs")
async def test_control_without_memory_of_what_was_asked_all_ages_are_read(
    wards: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Prefixes, "ask", lambda *_: None)
    async with wards(ages=IN_PAIRS, **OPEN) as hub:
        ages, why = await everybodys(hub)
        assert ages == sorted({age for site in IN_PAIRS for age in site}), why
        assert len(ages) > MOST


async def more_steps_than_a_search(hub: LyingHub) -> tuple[int, str]:
    """How many questions of one run a site answers, of other beginnings each, and why no more: each counts its own."""
    first = keys(np.array([20.0]))[0] >> np.uint64(KEY_BITS - BITS)
    for number in range(1, 18):
        results = await asked_to_count(hub, ["site-0"], number, 1, BITS, [int(first) ^ number])
        if refusals(results):
            return number - 1, refusals(results)["site-0"]
    return number, ""


async def test_one_run_asks_in_no_more_steps_than_a_search_has(wards: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Prefixes, "ask", lambda *_: None)  # which is stricter here
    async with wards(**OPEN) as hub:
        answered, why = await more_steps_than_a_search(hub)
        assert answered == 16
        assert "quantiles in more than 16 steps" in why


@pytest.mark.control("test_one_run_asks_in_no_more_steps_than_a_search_has")
async def test_control_without_the_limit_of_a_run_all_are_answered(wards: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Prefixes, "ask", lambda *_: None)
    monkeypatch.setattr(Questions, "check", lambda *_: None)
    async with wards(**OPEN) as hub:
        assert await more_steps_than_a_search(hub) == (17, "")


async def test_an_honest_search_is_within_the_bound(wards: Any) -> None:
    """Six beginnings at each depth, again and again; and of as many other cells once."""
    async with wards(**OPEN) as hub:
        for run, start in ((1, 0), (2, 0), (3, MOST_PREFIXES)):
            asked = list(range(start, start + MOST_PREFIXES))
            told, why = await counts(hub, run, run, BITS, asked)
            assert told is not None, why
        assert MOST == 2 * MOST_PREFIXES


BINS = 5888


async def counted(hub: LyingHub, asked: Counts, weight: Array, bias: Array) -> tuple[NDArray[np.uint64] | None, str]:
    """The words that all sites count of a linear model with logits weight * age + bias; or why there are none."""
    plan = hub.plan(metrics=["accuracy"]).model_copy(update={"counts": asked.words})
    model = {"output.weight": weight[:, None], "output.bias": bias}
    config = {"model": {"name": "logistic"}, "train": {}, "evaluate": {"counts": told_of(asked)}}
    results = await hub.ask(
        *(
            hub.task(site, "s0", kind=TaskKind.EVALUATE, plan=plan, model=model, config=config)
            for site in hub.stage.names
        )
    )
    if refusals(results):
        return None, "; ".join(refusals(results).values())
    tallies = [await hub.file(result, result.tally) for result in results.values()]
    answer = await hub.ask_masks(results, "s0")
    total = sum_tallies(tallies, plan, [await hub.tally_masks(answer)])
    return unpack_words(total.counted or "", asked.words, field="counted"), ""


async def scores(hub: LyingHub, bins: int) -> tuple[list[float], str]:
    """The mean score of each bin that is not empty, of a model whose score is the age; or why there are none."""
    asked = Counts(("auroc",), "classification", 2, bins)
    told, why = await counted(hub, asked, np.array([0.0, 1.0]), np.zeros(2))
    if told is None:
        return [], why
    words = told[asked.parts["scores"]]
    there = np.flatnonzero(words)
    within = (words[there] & np.uint64((1 << 40) - 1)) / (words[there] >> np.uint64(40)) / 65536
    places = (there % bins + within) / bins
    return sorted(SMALLEST * np.sinh((2 * places - 1) * np.arcsinh(LARGEST / SMALLEST))), ""


async def test_where_histograms_of_scores_are_closed_nobodys_feature_is_read_from_a_models_scores(
    wards: Any,
) -> None:
    async with wards() as hub:
        ages, why = await scores(hub, BINS)
        assert ages == []
        assert "asking.protocols: score_histograms" in why


@pytest.mark.control("test_where_histograms_of_scores_are_closed_nobodys_feature_is_read_from_a_models_scores")
async def test_control_where_the_site_counts_as_finely_as_it_is_asked_all_ages_are_read(
    wards: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AskingPolicy, "check_protocols", lambda *_, **__: None)
    async with wards() as hub:
        ages, why = await scores(hub, BINS)
        assert ages == pytest.approx(EVERYBODY, abs=0.01), why


async def test_an_honest_histogram_that_is_coarse_has_all_people_in_few_bins(wards: Any) -> None:
    async with wards() as hub:
        ages, why = await scores(hub, 32)
        assert 0 < len(ages) <= 4, why


async def alone_in_a_bin(hub: LyingHub) -> tuple[list[float], str]:
    """Ages, of calibration's bins in which there is one person: of a model whose log-odds are linear in the age."""
    asked, slope, even = Counts(("ece",), "classification", 2), 1.0, EVERYBODY[-1] - 2.0
    told, why = await counted(hub, asked, np.array([0.0, slope]), np.array([0.0, -slope * even]))
    if told is None:
        return [], why
    people, chances, _ = told[asked.parts["probabilities"]][:-1].astype(np.float64).reshape(3, CALIBRATION_BINS)
    chance = chances[people == 1] * 2.0**-FRACTION_BITS
    return sorted(even + np.log(chance / (1 - chance)) / slope), ""


async def test_where_calibration_is_closed_nobody_is_alone_in_a_bin(wards: Any) -> None:
    async with wards() as hub:
        ages, why = await alone_in_a_bin(hub)
        assert ages == []
        assert "asking.protocols: calibration" in why


@pytest.mark.control("test_where_calibration_is_closed_nobody_is_alone_in_a_bin")
async def test_control_where_the_site_tells_calibration_to_whoever_asks_ages_are_read(
    wards: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AskingPolicy, "check_protocols", lambda *_, **__: None)
    async with wards() as hub:
        ages, why = await alone_in_a_bin(hub)
        assert len(ages) >= 5, why
        assert all(np.abs(np.array(EVERYBODY) - age).min() < 1e-3 for age in ages)


async def placed(hub: LyingHub, cells: int) -> tuple[list[float], str]:
    """The places of the cells in which there is anybody, between the schema's bounds, of a model that says the age."""
    asked = Counts(("concordance",), "regression", 0, cells, bounds=STAYS.target_bounds)
    told, why = await counted(hub, asked, np.ones(1), np.zeros(1))
    if told is None:
        return [], why
    people = told[asked.parts["pairs"]][:cells].reshape(shape_of(cells)).sum(axis=0).astype(int)
    columns = np.repeat(np.arange(len(people)), people)
    return sorted((columns + 0.5) / len(people) * STAYS.target_bounds[-1]), ""


async def test_where_concordance_is_closed_nobodys_age_is_read_from_its_cells(wards: Any) -> None:
    async with wards(STAYS) as hub:
        ages, why = await placed(hub, FINEST_CELLS)
        assert ages == []
        assert "asking.protocols: concordance" in why


@pytest.mark.control("test_where_concordance_is_closed_nobodys_age_is_read_from_its_cells")
async def test_control_where_the_site_counts_in_cells_as_fine_as_it_is_asked_all_ages_are_read(
    wards: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AskingPolicy, "check_protocols", lambda *_, **__: None)
    async with wards(STAYS) as hub:
        ages, why = await placed(hub, FINEST_CELLS)
        assert ages == pytest.approx(EVERYBODY, abs=0.25), why


async def test_honest_cells_that_are_coarse_have_all_people_in_few_of_them(wards: Any) -> None:
    async with wards(STAYS) as hub:
        ages, why = await placed(hub, COARSE)
        assert 0 < len(set(ages)) <= 4, why


CENTRES = 20.0 + 0.3125 * np.arange(MOST_CLASSES)
"""Of the ages, one for each class that a model tells apart."""


async def nearest(hub: LyingHub, metric: str) -> tuple[list[int], str]:
    """How many people's ages are nearest to each centre, by the counts of a model of as many classes; or why not."""
    asked = Counts((metric,), "classification", MOST_CLASSES, COARSE)
    told, why = await counted(hub, asked, 4000 * CENTRES, -2000 * CENTRES**2)
    if told is None:
        return [], why
    if metric == "auroc":
        rows = told[asked.parts["scores"]].reshape(MOST_CLASSES, 2, COARSE) >> np.uint64(40)
        return rows[:, :, COARSE // 2 :].sum(axis=(1, 2)).astype(int).tolist(), ""
    return told[asked.parts["confusion"]].reshape(MOST_CLASSES, -1).sum(axis=0).astype(int).tolist(), ""


@pytest.mark.parametrize(("metric", "protocol"), [("auroc", "score_histograms"), ("sensitivity", "confusion")])
async def test_many_classes_are_as_fine_as_many_bins(wards: Any, metric: str, protocol: str) -> None:
    async with wards(MANY) as hub:
        people, why = await nearest(hub, metric)
        assert people == []
        assert f"asking.protocols: {protocol}" in why


@pytest.mark.parametrize("metric", ["auroc", "sensitivity"])
@pytest.mark.control("test_many_classes_are_as_fine_as_many_bins")
async def test_control_where_classes_are_not_counted_as_questions_ages_are_read(
    wards: Any, monkeypatch: pytest.MonkeyPatch, metric: str
) -> None:
    def whatever_the_classes(names: Any, bins: int, _classes: int, groups: int, *, noisy: bool) -> dict[str, int]:
        return asked_by_counts(names, bins, 2, groups, noisy=noisy)

    monkeypatch.setattr(site_policy, "asked_by_counts", whatever_the_classes)
    async with wards(MANY) as hub:
        people, why = await nearest(hub, metric)
        ages = np.array(EVERYBODY)
        expected = np.bincount(np.abs(ages[:, None] - CENTRES).argmin(axis=1), minlength=MOST_CLASSES)
        assert people == expected.tolist(), why
        assert sum(number == 1 for number in people) > 20
