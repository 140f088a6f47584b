"""Metrics of groups of test examples: those of the pooled groups. Nothing small is told, nor follows from the rest."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score, f1_score, mean_absolute_error, recall_score, roc_auc_score

from hanse_fabric.errors import HanseError
from hanse_learning.pooled import Counts, subgroups
from hanse_learning.pooled.count import counts_of
from hanse_learning.pooled.derive import pooled, summed
from hanse_learning.pooled.layout import finest
from hanse_learning.pooled.subgroups import group_of, told_groups
from hanse_schemas.metrics import Task
from hanse_schemas.subgroups import REST, Subgroups

WARDS = Subgroups(column="ward", kind="category", values=("burns", "general", "stroke"), smallest=20)


def counts(
    names: tuple[str, ...], task: Task = "classification", classes: int = 2, asked: Subgroups | None = WARDS
) -> Counts:
    return Counts(names, task, classes, finest(classes, names, asked), asked)


def over_sites(made: Counts, outputs: Any, y: Any, groups: Any) -> Any:
    parts = np.array_split(np.arange(len(y)), 3)
    vectors = {f"site-{at}": counts_of(made, outputs[part], y[part], groups[part]) for at, part in enumerate(parts)}
    return pooled(made, summed(vectors, made.words))


def drawn(n: int = 3000, classes: int = 2, seed: int = 1) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    y, groups = rng.integers(0, classes, n), rng.choice(4, n, p=[0.5, 0.3, 0.15, 0.05])
    return rng.normal(size=(n, classes)) + np.eye(classes)[y] * (0.5 + groups[:, None] / 2), y, groups


def test_groups_have_scikit_learns_metrics_of_their_examples_and_the_whole_its_own() -> None:
    outputs, y, groups = drawn()
    found = over_sites(counts(("auroc", "sensitivity", "f1")), outputs, y, groups)
    told = found.curves["subgroups"]
    assert (told["column"], told["kept_back"]) == ("ward", [])
    odds, said = outputs[:, 1] - outputs[:, 0], outputs.argmax(axis=1)
    of = {label: groups == at for at, label in enumerate(WARDS.labels)}
    assert set(told["groups"]) == set(of) == {"burns", "general", "stroke", REST}
    for label, rows in [*of.items(), ("", np.ones(len(y), bool))]:
        metrics = told["groups"][label] if label else found.metrics
        assert metrics["auroc"] == pytest.approx(roc_auc_score(y[rows], odds[rows]), abs=1e-3 if label else 2e-4)
        assert metrics["sensitivity"] == pytest.approx(recall_score(y[rows], said[rows]), abs=1e-12)
        assert metrics["f1"] == pytest.approx(f1_score(y[rows], said[rows]), abs=1e-12)
        if label:
            assert metrics["examples"] == rows.sum()
    values = [told["groups"][label]["auroc"] for label in WARDS.labels]
    assert max(values) - min(values) > 0.05  # what the whole does not say


def test_the_whole_is_told_as_where_nobody_asks_for_groups() -> None:
    outputs, y, groups = drawn()
    names = ("sensitivity", "f1", "brier", "ece", "matthews")
    with_groups = over_sites(counts(names), outputs, y, groups)
    without = Counts(names, "classification", 2)
    alone = pooled(without, counts_of(without, outputs, y))
    assert with_groups.metrics == alone.metrics
    assert with_groups.curves["sites"] == 3
    assert with_groups.curves["confusion"] == alone.curves["confusion"]


def test_classes_and_values_have_groups_too() -> None:
    outputs, y, groups = drawn(classes=4)
    told = over_sites(counts(("balanced_accuracy",), classes=4), outputs, y, groups).curves["subgroups"]["groups"]
    for at, label in enumerate(WARDS.labels):
        rows = groups == at
        exact = balanced_accuracy_score(y[rows], outputs[rows].argmax(axis=1))
        assert told[label]["balanced_accuracy"] == pytest.approx(exact, abs=1e-12)
    values, said = np.arange(300.0).reshape(-1, 1), np.arange(300.0).reshape(-1, 1) ** 1.1
    told = over_sites(counts(("mae",), "regression", 0), said, values, groups[:300]).curves["subgroups"]["groups"]
    rows = groups[:300] == 0
    assert told["burns"]["mae"] == pytest.approx(mean_absolute_error(values[rows], said[rows]), rel=1e-12)


def test_one_patient_of_a_ward_does_not_follow_from_the_whole_less_the_groups_that_are_told() -> None:
    outputs, y, groups = drawn(600)
    groups = np.where(groups == 3, 0, groups)
    groups[17] = 3
    found = over_sites(counts(("sensitivity", "specificity")), outputs, y, groups)
    told, whole = found.curves["subgroups"], found.curves
    assert REST not in told["groups"]
    assert len(told["kept_back"]) == 2
    left = whole["examples"] - sum(group["examples"] for group in told["groups"].values())
    assert left == told["others"]["examples"] >= 2 * WARDS.smallest
    # The control: told of every group that has enough, the whole less these has his class, and what was said of him.
    naive = np.array(whole["confusion"])
    for at in range(3):
        rows = groups == at
        naive -= np.histogram2d(y[rows], outputs[rows].argmax(axis=1), bins=2)[0].astype(int)
    assert naive.sum() == naive[y[17], outputs[17].argmax()] == 1


def attacked(sizes: np.ndarray, told: np.ndarray) -> np.ndarray:
    """What anybody has of those that are kept back: by class, the whole less all that is told."""
    return np.asarray(sizes.sum(axis=0) - sizes[told].sum(axis=0))


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=8),
    st.integers(5, 25),
)
def test_no_difference_is_of_few(rows: list[tuple[int, int]], smallest: int) -> None:
    sizes = np.array(rows, np.int64)
    told = told_groups(sizes, smallest)
    there = sizes[:, sizes.sum(axis=0) > 0]
    assert (there[told] >= smallest).all()
    left = attacked(there, told)
    assert not left.any() or (left >= smallest).all() or not told.any()
    big = (there >= smallest).all(axis=1) & (there.sum(axis=1) > 0)
    if big.all():
        assert told.all()  # nothing is kept back for nothing


FEW_OF_ONE_CLASS = np.array([[40, 25], [60, 0], [15, 60]])
"""What two jobs, in which 10 and 20 are enough, tell together where the smallest groups are kept back first."""


def left_by(sizes: np.ndarray, *enough: int) -> list[int]:
    """By class, the whole less all that jobs tell which differ in `smallest` alone."""
    told = np.logical_or.reduce([told_groups(sizes, smallest) for smallest in enough])
    return [int(number) for number in attacked(sizes, told)]


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=8),
    st.lists(st.integers(5, 40), min_size=1, max_size=4),
)
@example([(40, 25), (60, 0), (15, 60)], [10, 20])
def test_jobs_with_another_smallest_tell_together_no_more_than_one_of_them(
    rows: list[tuple[int, int]], enough: list[int]
) -> None:
    sizes = np.array(rows, np.int64)
    there = sizes[:, sizes.sum(axis=0) > 0]
    left = left_by(there, *enough)
    assert left == left_by(there, min(enough))
    assert not any(left) or min(left) >= min(enough) or left == attacked(there, np.zeros(len(there), bool)).tolist()


def test_control_where_the_smallest_groups_go_first_two_jobs_tell_of_a_group_without_one_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert left_by(FEW_OF_ONE_CLASS, 10, 20) == [75, 60]
    monkeypatch.setattr(subgroups, "keep_first", lambda there: lambda at: (int(there[at].sum()), at))
    assert left_by(FEW_OF_ONE_CLASS, 10) == [100, 25]
    assert left_by(FEW_OF_ONE_CLASS, 20) == [75, 60]
    assert left_by(FEW_OF_ONE_CLASS, 10, 20) == [60, 0]


def test_control_without_complementary_suppression_the_difference_is_one_patient() -> None:
    sizes = np.array([[50, 50], [60, 60], [0, 1]])
    naive = (sizes >= 20).all(axis=1)
    assert attacked(sizes, naive).tolist() == [0, 1]
    told = told_groups(sizes, 20)
    assert told.tolist() == [False, True, False]
    assert attacked(sizes, told).tolist() == [50, 51]


def test_what_is_kept_back_does_not_depend_on_what_the_model_says() -> None:
    outputs, y, groups = drawn(400)
    names = ("sensitivity",)
    kept = [
        over_sites(counts(names), outputs * sign, y, groups).curves["subgroups"]["kept_back"] for sign in (1, -1, 0)
    ]
    assert kept[0] == kept[1] == kept[2]


def test_cells_are_of_the_values_that_the_schema_names_or_of_the_rest() -> None:
    cells = np.array(["general", None, "burns", "attic"], dtype=object)
    assert group_of(WARDS, cells).tolist() == [1, 3, 0, 3]
    assert group_of(Subgroups(column="smoker", kind="boolean"), np.array([1.0, np.nan, 0.0])).tolist() == [1, 2, 0]


AGES = Subgroups(column="age", kind="number", bands=(40, 60.5))


def test_a_number_is_of_the_band_whose_lower_bound_it_is_or_of_the_rest() -> None:
    assert AGES.labels == ("below 40", "40 to below 60.5", "60.5 or more", REST)
    cells = np.array([-3.0, 39.999, 40.0, 60.0, 60.5, 1e9, np.nan])
    assert group_of(AGES, cells).tolist() == [0, 0, 1, 1, 2, 2, 3]
    one = Subgroups(column="age", kind="number", bands=(0.1 + 0.2,))
    assert one.labels == ("below 0.30000000000000004", "0.30000000000000004 or more", REST)
    assert group_of(one, np.array([0.3, 0.1 + 0.2])).tolist() == [0, 1]


def test_a_section_that_no_hub_has_completed_has_no_groups() -> None:
    with pytest.raises(HanseError, match=r"evaluate\.subgroups\.kind: None.*category, boolean or number"):
        group_of(Subgroups(column="age"), np.zeros(2))


def test_bands_have_the_metrics_of_their_examples_and_keep_small_ones_back() -> None:
    outputs, y, _ = drawn()
    ages = np.random.default_rng(2).normal(55, 12, len(y))
    ages[5] = np.nan  # alone in the rest: a band is kept back with it
    found = over_sites(counts(("sensitivity",), asked=AGES), outputs, y, group_of(AGES, ages))
    told = found.curves["subgroups"]
    assert (told["column"], told["kept_back"]) == ("age", ["below 40", REST])
    assert told["others"]["examples"] == (ages < 40).sum() + 1
    for label, rows in (("40 to below 60.5", (ages >= 40) & (ages < 60.5)), ("60.5 or more", ages >= 60.5)):
        exact = recall_score(y[rows], outputs[rows].argmax(axis=1))
        assert told["groups"][label]["sensitivity"] == pytest.approx(exact, abs=1e-12)


def test_control_bands_that_a_job_may_choose_tell_of_one_patient_by_the_difference_of_two() -> None:
    outputs, y, _ = drawn()
    ages = np.random.default_rng(2).uniform(20, 90, len(y)).round(3)
    one = int(np.argmin(np.abs(ages - 60)))

    def above(bound: float) -> Any:
        asked = AGES.model_copy(update={"bands": (40.0, bound)})
        made = counts(("sensitivity", "specificity"), asked=asked)
        told = over_sites(made, outputs, y, group_of(asked, ages)).curves["subgroups"]["groups"]
        return told[asked.labels[2]]

    just_above, with_him = above(float(np.nextafter(ages[one], 90))), above(float(ages[one]))
    assert with_him["examples"] - just_above["examples"] == 1
    name, other = ("sensitivity", "specificity") if y[one] else ("specificity", "sensitivity")
    assert with_him[other] == just_above[other]
    assert (with_him[name] > just_above[name]) == (outputs[one].argmax() == y[one])  # what was said of him


def test_counts_that_no_examples_can_have_tell_of_no_group() -> None:
    outputs, y, groups = drawn(300)
    made = counts(("f1",))
    good = counts_of(made, outputs, y, groups)
    for at, wrong in itertools.product(range(made.groups), (1 << 63, 5)):
        words = good.copy()
        words[at * made.block + 2] += np.uint64(wrong)
        assert "subgroups" not in pooled(made, words).curves
