"""Metrics of counts with noise: without the noise they are the exact ones, one unit moves no more than is charged, and
what is told of how surely they are known is true."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss
from sklearn.preprocessing import StandardScaler

from hanse_fabric.messages.privacy import PrivateMetrics
from hanse_fabric.tensors.words import pack_words, unpack_words
from hanse_learning.pooled.count import counts_of
from hanse_learning.pooled.derive import Pooled, pooled, summed
from hanse_learning.pooled.layout import Counts, scale_of, with_noise
from hanse_learning.pooled.nearest import nearest
from hanse_learning.pooled.noisy import STEPS, chosen_rows, noise_of
from hanse_learning.pooled.noisy import with_noise as noised
from hanse_privacy.noise.source import NoiseSource
from hanse_schemas.job import Evaluation
from hanse_schemas.subgroups import Subgroups

NAMES = ("auroc", "average_precision", "sensitivity", "specificity", "precision", "f1", "balanced_accuracy", "matthews")
SEX = Subgroups(column="sex", kind="category", values=("f", "m"), smallest=20)


def asked(
    names: tuple[str, ...] = NAMES, classes: int = 2, groups: Subgroups | None = None, **spent: Any
) -> tuple[Counts, Counts]:
    """(with noise, the same of exact counts)."""
    evaluation = Evaluation.model_validate({"metrics": names, "classes": classes, "subgroups": groups})
    counts = with_noise(evaluation, PrivateMetrics.model_validate(spent))
    return counts, Counts(names, "classification", classes, counts.bins, groups)


def drawn(n: int = 900, classes: int = 2, seed: int = 1) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    return rng.normal(size=(n, classes)) + 1.5 * np.eye(classes)[y], y, rng.integers(0, 3, n)


def of_sites(counts: Counts, sites: list[tuple[Any, Any, Any]], source: NoiseSource | None = None) -> Pooled:
    """What comes of several sites; without a source there is no noise."""
    vectors = {}
    for at, (outputs, y, groups) in enumerate(sites):
        words = counts_of(counts, outputs, y, groups)
        if source is not None and counts.scale is not None:
            words = unpack_words(
                noised(counts, counts.scale, pack_words(words), source), counts.words, field="counted"
            )  # fmt: skip
        vectors[f"site-{at}"] = words
    return pooled(counts, summed(vectors, counts.words))


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_without_the_noise_they_are_the_metrics_of_exact_counts(classes: int) -> None:
    counts, exact = asked(classes=classes)
    sites = [drawn(300 + 50 * at, classes, at) for at in range(3)]
    found, plain = of_sites(counts, sites), of_sites(exact, sites)
    assert found.metrics == plain.metrics
    assert set(found.metrics) == set(NAMES)
    for name in ("confusion", "roc", "precision_recall", "examples", "sites", "by_class"):
        assert found.curves.get(name) == plain.curves.get(name), name


def test_concordance_without_the_noise_is_that_of_coarse_cells_and_one_example_moves_one() -> None:
    evaluation = Evaluation.model_validate({"metrics": ("concordance",), "classes": 0, "bounds": (-4, 4)})
    counts = with_noise(evaluation, PrivateMetrics(rows=2, epsilon=2.0))
    assert (counts.cells, counts.scale, counts.bins) == (1, 1.0, 16)
    exact = Counts(("concordance",), "regression", 0, 16, bounds=(-4.0, 4.0))
    rng = np.random.default_rng(0)
    y = rng.normal(size=(800, 1))
    sites = [(0.5 * part + rng.normal(size=part.shape) / 2, part, None) for part in np.split(y, [300, 500])]
    found, plain = of_sites(counts, sites), of_sites(exact, sites)
    assert found.metrics == plain.metrics
    assert found.curves["concordance_between"] == plain.curves["concordance_between"]
    some = [counts_of(counts, 0.5 * y[:at], y[:at]).view(np.int64) for at in (0, 1, 799, 800)]
    for less, more in zip(some[::2], some[1::2], strict=True):
        assert np.abs(more - less).sum() == STEPS
    wild = counts_of(counts, np.array([[np.nan], [np.inf]]), np.zeros((2, 1))).view(np.int64)
    assert wild[2:].sum() == 2 * STEPS  # never a refusal, which would tell of them
    noisy = of_sites(counts, sites, NoiseSource(b"0" * 32))
    error = noisy.curves["noise"]["standard_error"]["concordance"]
    assert 0 < error < 0.05
    assert noisy.metrics["concordance"] == pytest.approx(plain.metrics["concordance"], abs=5 * error)


def test_without_the_noise_groups_are_those_of_exact_counts() -> None:
    counts, exact = asked(groups=SEX)
    sites = [drawn(600, seed=at) for at in range(2)]
    found, plain = of_sites(counts, sites), of_sites(exact, sites)
    assert found.metrics == plain.metrics
    told = found.curves["subgroups"]
    for group in told["groups"].values():
        assert set(group.pop("standard_error")) <= set(NAMES)
    assert told == plain.curves["subgroups"]


def test_calibration_is_of_the_middles_of_bins() -> None:
    counts, exact = asked(("brier", "ece"))
    sites = [drawn(3000)]
    found, plain = of_sites(counts, sites), of_sites(exact, sites)
    outputs, y, _ = sites[0]
    chances = 1 / (1 + np.exp(outputs[:, 0] - outputs[:, 1]))
    assert plain.metrics["brier"] == pytest.approx(brier_score_loss(y, chances), abs=1e-6)
    assert found.metrics["brier"] == pytest.approx(plain.metrics["brier"], abs=0.02)
    assert found.metrics["ece"] == pytest.approx(plain.metrics["ece"], abs=0.05)
    assert found.curves["calibration"]


def moved_by(counts: Counts, outputs: Any, y: Any, groups: Any, one: np.ndarray) -> int:
    """By how much the vector changes in L1 where these examples were not there, in steps."""
    with_them = counts_of(counts, outputs, y, groups).view(np.int64)
    without = counts_of(counts, outputs[~one], y[~one], None if groups is None else groups[~one]).view(np.int64)
    return int(np.abs(with_them - without).sum())


ODD = st.sampled_from([0.0, 1e-9, 1.0, -1.0, 30.0, 1e30, -1e300, np.inf, -np.inf, np.nan])


@given(st.lists(st.tuples(ODD, ODD, st.integers(0, 1), st.integers(0, 2)), min_size=1, max_size=20), st.booleans())
def test_one_example_moves_as_many_counts_as_are_charged_whatever_the_model_says_of_it(
    rows: list[tuple[float, float, int, int]], by_sex: bool
) -> None:
    counts, _ = asked(groups=SEX if by_sex else None)
    outputs = np.array([row[:2] for row in rows])
    y, groups = np.array([row[2] for row in rows]), np.array([row[3] for row in rows])
    one = np.arange(len(rows)) == 0
    assert counts.cells == 1
    assert moved_by(counts, outputs, y, groups if by_sex else None, one) == counts.cells * STEPS


def test_no_example_takes_the_place_of_one_that_leaves_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where counting ended at a largest number, the next example was let in for it, and two counts moved."""
    monkeypatch.setattr("hanse_learning.pooled.noisy.MOST_EXAMPLES", 4, raising=False)
    counts, _ = asked()
    outputs, y = np.array([[0.0, 3.0]] * 4 + [[3.0, 0.0]]), np.array([1, 1, 1, 1, 0])
    assert moved_by(counts, outputs, y, None, np.arange(5) == 0) == STEPS
    assert counts_of(counts, outputs, y).view(np.int64)[2:].sum() == 5 * STEPS


def test_control_in_exact_counts_one_example_moves_the_sums_by_more_than_any_noise_hides() -> None:
    _, exact = asked(("auroc", "brier", "f1"))
    outputs, y, _ = drawn(50)
    assert moved_by(exact, outputs, y, None, np.arange(50) == 0) > 1 << 40


def test_of_more_classes_an_example_moves_a_count_of_each_ones_histogram() -> None:
    for names, cells in ((("f1",), 1), (("auroc",), 5), (("auroc", "f1"), 6)):
        counts, _ = asked(names, classes=5)
        outputs, y, _ = drawn(40, 5)
        assert moved_by(counts, outputs, y, None, np.arange(40) == 3) == counts.cells * STEPS == cells * STEPS
        assert counts.scale == cells


def test_a_unit_with_many_rows_moves_no_more_than_its_rows_that_are_charged() -> None:
    counts, _ = asked(rows=3, epsilon=0.5)
    assert counts.scale == 6.0
    outputs, y, _ = drawn(100)
    whose = np.array([*[0] * 60, *[1] * 2, *range(2, 40)])
    of = {}
    for there in (True, False):
        rows = np.flatnonzero((whose != 0) | there)
        chosen = rows[chosen_rows(whose[rows], 3)]
        of[there] = counts_of(counts, outputs[chosen], y[chosen]).view(np.int64)
    assert np.abs(of[True] - of[False]).sum() == 3 * STEPS
    all_of_them = counts_of(counts, outputs, y).view(np.int64)  # the control: rows that are not chosen
    others = counts_of(counts, outputs[60:], y[60:]).view(np.int64)
    assert np.abs(all_of_them - others).sum() == 60 * STEPS
    assert chosen_rows(np.array([4, 1, 4, 4, 1]), 2).tolist() == [0, 1, 2, 4]


@pytest.mark.parametrize(("epsilon", "bounds"), [(0.25, {}), (1.0, {}), (3.0, {"loss": 4.0, "accuracy": 1.0})])
def test_the_noise_of_an_example_costs_what_the_answer_is_charged(epsilon: float, bounds: dict[str, float]) -> None:
    counts, _ = asked(epsilon=epsilon, bounds=bounds)
    assert counts.scale == scale_of(counts, PrivateMetrics(epsilon=epsilon, bounds=bounds))
    of_counts = counts.cells * noise_of(counts.scale or 0.0).event.epsilon
    means = len(bounds) + 1 if bounds else 0
    of_means = epsilon * means / (means + counts.cells)
    assert epsilon * 0.99 < of_counts + of_means <= epsilon * (1 + 1e-12)


def test_no_count_is_negative_no_curve_falls_and_the_classes_keep_their_shares() -> None:
    counts, _ = asked(epsilon=0.1)
    outputs, y, _ = drawn(400)
    for seed in range(8):
        source = NoiseSource(bytes([seed] * 32))
        found = of_sites(counts, [(outputs, y, None)], source)
        assert min(min(row) for row in found.curves["confusion"]) >= 0
        points = np.array(found.curves["roc"]["1"])
        assert (np.diff(points, axis=0) >= 0).all()
        assert all(0 <= value <= 1 for name, value in found.metrics.items() if name != "matthews")
    values = np.array([5.0, 0.4, -3.0, 9.0, -2.0]) * STEPS
    part = counts.parts["scores"]
    block = np.zeros(counts.block, np.int64)
    block[part][:5] = values
    made = nearest(counts, block)[part]
    assert made[: counts.bins].sum() == round(9.4) * STEPS
    assert (made >= 0).all()


def real(name: str) -> tuple[Any, Any]:
    """(logits, labels) of the half of a real table that a logistic regression was not made of."""
    x, y = (load_breast_cancer if name == "breast cancer" else load_diabetes)(return_X_y=True)
    y = (y > 140).astype(int) if name == "diabetes" else y
    rows = np.random.default_rng(5).permutation(len(y))
    train, test = np.array_split(rows, 2)
    scaler = StandardScaler().fit(x[train])
    odds = (
        LogisticRegression(C=0.1).fit(scaler.transform(x[train]), y[train]).decision_function(scaler.transform(x[test]))
    )
    return np.stack([np.zeros(len(odds)), odds], axis=1), y[test]


@pytest.mark.parametrize(("table", "epsilon"), [("breast cancer", 1.0), ("diabetes", 3.0)])
def test_the_standard_error_that_is_told_is_how_far_noise_moves_metrics_of_real_tables(
    table: str, epsilon: float
) -> None:
    counts, exact = asked(("auroc", "sensitivity", "f1"), epsilon=epsilon)
    outputs, y = real(table)
    sites = [(outputs[at::3], y[at::3], None) for at in range(3)]
    plain = of_sites(exact, sites).metrics
    errors: dict[str, list[float]] = {name: [] for name in plain}
    told: dict[str, list[float]] = {name: [] for name in plain}
    for seed in range(24):
        found = of_sites(counts, sites, NoiseSource(bytes([seed] * 32)))
        for name, value in found.metrics.items():
            errors[name].append(value - plain[name])
            told[name].append(found.curves["noise"]["standard_error"][name])
    for name in plain:
        moved = float(np.sqrt(np.mean(np.square(errors[name]))))
        assert 0.5 < moved / np.mean(told[name]) < 2, (name, moved, np.mean(told[name]))
        assert moved < (0.1 if epsilon == 1 else 0.04), name


def test_more_sites_have_more_noise_and_say_so() -> None:
    counts, _ = asked(("auroc",))
    outputs, y, _ = drawn(2000)
    told = [
        of_sites(counts, [(outputs[at::many], y[at::many], None) for at in range(many)], NoiseSource(bytes(32)))
        .curves["noise"]["standard_error"]["auroc"] for many in (1, 25)
    ]  # fmt: skip
    assert told[1] > 2 * told[0] > 0


@given(st.lists(st.integers(0, 2**64 - 1), min_size=34, max_size=34))
def test_whatever_sites_send_there_is_an_answer(words: list[int]) -> None:
    counts, _ = asked()
    found = pooled(counts, np.array(words, np.uint64), errors=False)
    assert set(found.metrics) | set(found.undefined) == set(NAMES)
    pooled(counts, np.array([2, 0, *words[2:]], np.uint64), errors=False)
