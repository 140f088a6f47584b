"""A preparation from noisy sums: without noise it is the plain one, with noise it is sane whatever is drawn, and nobody
changes the sums by more than the noise is made for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from hanse_fabric.errors import HanseError
from hanse_learning.preparation.contributions import contributed
from hanse_learning.preparation.isotonic import ascending
from hanse_learning.preparation.noisy import (
    BINS,
    NOISY,
    STEP,
    VARIANCE,
    released,
    require_ends,
    settled,
    told_variance,
)
from hanse_reduction.study import MOST_FACTS
from hanse_schemas.preparation import Preparation, PreparedCategory, PreparedNumber
from hanse_schemas.prepare import Prepare, Rule, completed
from hanse_schemas.schema import Column, TabularSchema
from unit.learning.pooled_tables import federated, raw_cells, schema_of, sites_of, titanic

CLIPS = {"age": [0, 80], "fare": [0, 600], "sibsp": [0, 10], "parch": [0, 10]}


def prepare(**numbers: Any) -> Prepare:
    return Prepare(
        numbers=numbers, categories={"rare": 200},
        columns=tuple({"name": name, "clip": clip} for name, clip in CLIPS.items()),
    )  # fmt: skip


def vectors(
    rules: tuple[Rule, ...], schema: TabularSchema, sites: list[pd.DataFrame], *, of_sites: bool = False, **more: Any
) -> list[NDArray[np.int64]]:
    vector = released(rules, more.pop("classes", 0), of_sites=of_sites)
    return [contributed(vector, raw_cells(schema, frame), len(frame), **more) for frame in sites]


def found(
    rules: tuple[Rule, ...], total: NDArray[np.int64], *, deviation: float = 0.0, of_sites: bool = False, members: int
) -> Preparation:
    """Of a sum whose noise has this deviation, in rows."""
    variance = told_variance((deviation * STEP) ** 2) if deviation else 0
    sums = {NOISY: total.tolist(), VARIANCE: [variance]}
    return settled(rules, 0, sums, of_sites=of_sites, members=members)[0]


def numbers_of(preparation: Preparation) -> dict[str, tuple[float, float, float, bool]]:
    return {
        column.name: (column.centre, column.scale, column.fill or 0.0, column.indicator)
        for column in preparation.columns
        if isinstance(column, PreparedNumber)
    }


@pytest.mark.parametrize("asked", [{}, {"log": True}, {"scale": "none"}], ids=str)
def test_without_noise_it_is_the_plain_preparation(asked: dict[str, Any]) -> None:
    frame, schema = titanic()
    sites = sites_of(frame, 4)
    rules = completed(prepare(**asked), schema).rules
    _, plain = federated(prepare(**asked), schema, sites)
    noisy = found(rules, np.sum(vectors(rules, schema, sites), axis=0), members=4)
    assert noisy.outputs == plain.outputs
    for name, (*expected, indicator) in numbers_of(plain).items():
        *numbers, told = numbers_of(noisy)[name]
        assert numbers == pytest.approx(expected, rel=1e-5)
        assert told == indicator
    categories = [column for column in plain.columns if isinstance(column, PreparedCategory)]
    assert [column for column in noisy.columns if isinstance(column, PreparedCategory)] == categories


def test_without_noise_quartiles_are_within_a_bin_of_the_pooled_tables() -> None:
    frame, schema = titanic()
    sites, asked = sites_of(frame, 4), prepare(scale="robust", missing="median")
    rules = completed(asked, schema).rules
    _, plain = federated(asked, schema, sites)
    noisy = found(rules, np.sum(vectors(rules, schema, sites), axis=0), members=4)
    for name, (centre, scale, fill, _) in numbers_of(plain).items():
        width = (CLIPS[name][1] - CLIPS[name][0]) / BINS
        told = numbers_of(noisy)[name]
        assert abs(told[0] - centre) < width
        assert abs(told[2] - fill) < width
        # A column that hardly differs is divided by the distance within its bin, not by one.
        assert abs(told[1] - scale) < 2 * width or (scale == 1.0 and told[1] > 0)


def test_of_people_each_counts_by_the_mean_of_their_rows() -> None:
    schema = schema_of([Column(name="age", minimum=0, maximum=100)])
    frame = pd.DataFrame({"age": [20.0] * 9 + [60.0]})
    rules = completed(Prepare(), schema).rules
    (vector,) = vectors(rules, schema, [frame], whose=np.array([0] * 9 + [1]))
    column = found(rules, vector, members=1).columns[0]
    assert isinstance(column, PreparedNumber)
    assert (column.centre, column.scale) == (pytest.approx(40.0), pytest.approx(20.0))
    assert vector[0] == 2 * STEP


def test_of_sites_each_counts_by_the_mean_of_its_rows() -> None:
    schema = schema_of([Column(name="age", minimum=0, maximum=100)])
    sites = [pd.DataFrame({"age": ages}) for ages in ([20.0] * 900, [60.0, 60.0], [10.0, np.nan])]
    rules = completed(Prepare(), schema).rules
    parts = vectors(rules, schema, sites, of_sites=True)
    column = found(rules, np.sum(parts, axis=0), of_sites=True, members=3).columns[0]
    assert isinstance(column, PreparedNumber)
    assert column.fill == pytest.approx((20 + 60 + 5) / 2.5, rel=1e-5)
    # Neither how many rows there are nor how many are missing is told but by their share.
    assert [part[0] / STEP for part in parts] == [0.0, 0.0, 0.5]


def extreme_tables(draw: np.random.Generator, rows: int) -> tuple[pd.DataFrame, TabularSchema]:
    """Cells at, between and beyond the ends, and missing ones."""
    numbers = ("a", "b", "c")
    frame = pd.DataFrame({
        name: draw.choice([-1e19, -5.0, -1.0, 0.0, 0.3, 2.0, 5.0, 1e19, np.nan], rows) for name in numbers
    })  # fmt: skip
    frame["w"] = draw.choice(["x", "y", "unheard", None], rows)
    columns = [Column(name=name, minimum=-5, maximum=5) for name in numbers]
    return frame, schema_of([*columns, Column(name="w", kind="category", values=("x", "y"))])


@pytest.mark.parametrize("scale", ["standard", "robust"])
@pytest.mark.parametrize("people", [False, True])
def test_one_row_or_person_more_changes_the_vector_by_no_more_than_the_noise_is_made_for(
    scale: str, *, people: bool
) -> None:
    draw = np.random.default_rng(3)
    most = [0.0, 0.0]
    for _ in range(80):
        frame, schema = extreme_tables(draw, 12)
        asked = Prepare(
            numbers={"scale": scale, "missing": "mean"}, categories={"rare": 1}, columns=({"name": "a", "log": True},)
        )  # fmt: skip
        rules = completed(asked, schema).rules
        l1, l2 = released(rules, 2, of_sites=False).norms
        whose, labels = (np.sort(draw.integers(0, 3, 12)) if people else np.arange(12)), draw.integers(0, 2, 12)
        kept = whose != whose[-1]
        (whole,) = vectors(rules, schema, [frame], classes=2, labels=labels, whose=whose)
        (less,) = vectors(rules, schema, [frame[kept]], classes=2, labels=labels[kept], whose=whose[kept])
        change = np.abs(whole - less).astype(float)
        assert change.sum() <= l1
        assert math.sqrt((change**2).sum()) <= l2
        most = [max(most[0], change.sum() / l1), max(most[1], math.sqrt((change**2).sum()) / l2)]
    # No noise is wasted, either: there are rows that change it by nearly as much.
    assert most[1] > 0.9


def test_one_site_replaced_changes_the_vector_by_no_more_than_the_noise_is_made_for() -> None:
    draw = np.random.default_rng(4)
    most = [0.0, 0.0]
    for number in range(50):
        # Rows that differ have a mean in the middle, so there are sites of one row, too.
        frame, schema = extreme_tables(draw, 1 if number % 2 else 5)
        other, _ = extreme_tables(draw, 1 if number % 2 else int(draw.integers(1, 400)))
        rules = completed(Prepare(), schema).rules
        l1, l2 = released(rules, of_sites=True).norms
        one, another = vectors(rules, schema, [frame, other], of_sites=True)
        change = np.abs(one - another).astype(float)
        assert change.sum() <= l1
        assert math.sqrt((change**2).sum()) <= l2
        most = [max(most[0], change.sum() / l1), max(most[1], math.sqrt((change**2).sum()) / l2)]
    # Noise for a site that comes or goes would not do.
    assert min(most) > 0.5


@pytest.mark.parametrize("deviation", [1.0, 30.0, 1e3, 1e6])
@pytest.mark.parametrize("scale", ["standard", "robust"])
def test_whatever_noise_is_drawn_the_preparation_is_sane(deviation: float, scale: str) -> None:
    frame, schema = titanic()
    rules = completed(prepare(scale=scale, missing="median" if scale == "robust" else "mean"), schema).rules
    total = np.sum(vectors(rules, schema, sites_of(frame, 3)), axis=0)
    draw = np.random.default_rng(5)
    for _ in range(30):
        noise = np.rint(draw.normal(0, deviation * STEP, total.size)).astype(np.int64)
        for name, (centre, width, fill, _) in numbers_of(
            found(rules, total + noise, deviation=deviation, members=3)
        ).items():
            low, high = CLIPS[name]
            assert low <= centre <= high
            assert low <= fill <= high
            assert (high - low) / 5e3 < width <= high - low
    # With little noise it is what it would be without.
    if deviation == 1.0:
        exact = numbers_of(found(rules, total, members=3))["age"]
        assert numbers_of(found(rules, total + noise, deviation=deviation, members=3))["age"][0] == pytest.approx(
            exact[0], rel=0.05
        )


def test_where_noise_says_all_the_columns_are_scaled_by_their_ends() -> None:
    schema = schema_of([Column(name="age", minimum=0, maximum=100)])
    rules = completed(Prepare(), schema).rules
    drowned = found(rules, np.array([STEP, 0, STEP, -9 * STEP]), deviation=1e6, members=3).columns[0]
    assert isinstance(drowned, PreparedNumber)
    assert drowned.centre == pytest.approx(50.0)
    assert drowned.scale == pytest.approx(50 * math.sqrt(0.1), rel=0.01)
    assert not drowned.indicator


def test_classes_have_a_row_at_least() -> None:
    schema = schema_of([Column(name="age", minimum=0, maximum=100)])
    rules = completed(Prepare(), schema).rules
    sums = {NOISY: [90 * STEP, 0, 0, 90 * STEP, 80 * STEP, -7 * STEP], VARIANCE: [256 * 4]}
    assert settled(rules, 2, sums, of_sites=False, members=1)[1] == (80, 2)


@pytest.mark.parametrize("sums", [{NOISY: [1, 2], VARIANCE: [0]}, {NOISY: [1] * 4, VARIANCE: [-1]}])
def test_sums_of_other_columns_are_refused(sums: dict[str, list[int]]) -> None:
    rules = completed(Prepare(), schema_of([Column(name="age", minimum=0, maximum=100)])).rules
    with pytest.raises(ValueError, match="expected"):
        settled(rules, 0, sums, of_sites=False, members=1)


def test_a_column_that_is_summed_needs_ends() -> None:
    schema = schema_of([Column(name="age")])
    with pytest.raises(HanseError, match=r"age\.clip"):
        require_ends(completed(Prepare(), schema).rules)
    require_ends(completed(Prepare(numbers={"clip": [0, 9]}), schema).rules)
    require_ends(completed(Prepare(numbers={"scale": "none", "missing": "constant", "indicator": True}), schema).rules)
    with pytest.raises(HanseError, match="two numbers that ascend"):
        completed(Prepare(numbers={"clip": [9, 0]}), schema)


def test_no_more_is_asked_than_one_step_of_a_run_can_tell() -> None:
    """The sum travels as JSON, of 128 KiB at most, where each number has 19 characters or fewer."""
    schema = schema_of([Column(name=f"x{at}", minimum=0, maximum=1) for at in range(182)])
    rules = completed(Prepare(numbers={"scale": "robust", "missing": "median"}), schema).rules
    with pytest.raises(HanseError, match="numbers with noise, at most 6000"):
        released(rules, of_sites=False)
    largest = released(rules[:181], of_sites=False).size
    assert largest * len(f"{-(1 << 55)}, ") <= MOST_FACTS


@pytest.mark.parametrize(
    ("given", "made"),
    [([1, 2, 3], [1, 2, 3]), ([3, 1], [2, 2]), ([1, 5, 3, 4, 9], [1, 4, 4, 4, 9]), ([3, 2, 1], [2, 2, 2]), ([], [])],
)
def test_numbers_that_do_not_ascend_are_pooled(given: list[float], made: list[float]) -> None:
    assert ascending(given) == made
