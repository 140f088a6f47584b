"""Metrics from sums of counts are those of the pooled examples: held against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    brier_score_loss,
    confusion_matrix,
    f1_score,
    jaccard_score,
    matthews_corrcoef,
    mean_absolute_error,
    precision_score,
    r2_score,
    recall_score,
    roc_auc_score,
    root_mean_squared_error,
)
from sklearn.preprocessing import StandardScaler

from hanse_fabric.errors import HanseError
from hanse_learning.pooled.count import counts_of, probabilities_of
from hanse_learning.pooled.derive import Pooled, pooled, summed
from hanse_learning.pooled.layout import MOST_EXAMPLES, MOST_WORDS, Counts, check_metrics, finest
from hanse_learning.pooled.scores import histogram, odds_of, ranking
from hanse_schemas.metrics import COUNTED, FINEST, of_task

OF_CLASSES = of_task("classification")
OF_NUMBERS = of_task("regression")


def counts_for(classes: int, names: tuple[str, ...] = OF_CLASSES, bins: int | None = None) -> Counts:
    task = "classification" if classes else "regression"
    return Counts(names, task, classes, bins or finest(classes, names), bounds=() if classes else (-1e6, 0.0, 1e6))


def over_sites(counts: Counts, outputs: np.ndarray, targets: np.ndarray, shares: tuple[float, ...]) -> Pooled:
    """As sites with such shares of the examples would find it, each with its own vector."""
    cuts = (np.cumsum(shares)[:-1] * len(targets)).astype(int)
    parts = zip(np.split(outputs, cuts), np.split(targets, cuts), strict=True)
    vectors = {f"site-{at}": counts_of(counts, x, y) for at, (x, y) in enumerate(parts)}
    return pooled(counts, summed(vectors, counts.words))


def two_logits(odds: np.ndarray) -> np.ndarray:
    return np.stack([np.zeros_like(odds), odds], axis=1)


def tables() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    cancer, wine, digits, diabetes = load_breast_cancer(), load_wine(), load_digits(), load_diabetes()
    return {
        "cancer": (cancer.data, cancer.target),
        "diabetes, above the median": (diabetes.data, (diabetes.target > np.median(diabetes.target)).astype(int)),
        "wine": (wine.data, wine.target),
        "digits": (digits.data, digits.target),
        "is it an eight": (digits.data, (digits.target == 8).astype(int)),
    }


@pytest.mark.parametrize("name", tables())
@pytest.mark.parametrize("strength", [0.01, 1.0, 10.0], ids=["flat", "fitted", "sure"])
def test_real_tables_have_scikit_learns_metrics_whatever_the_sites_have(name: str, strength: float) -> None:
    x, y = tables()[name]
    x = StandardScaler().fit_transform(x)
    rng = np.random.default_rng(1)
    order = rng.permutation(len(y))
    x, y = x[order], y[order]
    half = len(y) // 2
    model = LogisticRegression(max_iter=500).fit(x[:half], y[:half])
    scores = strength * model.decision_function(x)
    logits = two_logits(scores) if scores.ndim == 1 else scores
    # Sites as uneven as they come: sorted by class, so that some have one class alone.
    by_class = np.argsort(y, kind="stable")
    logits, y = logits[by_class], y[by_class]
    classes = logits.shape[1]
    found = over_sites(counts_for(classes), logits, y, (0.1, 0.6, 0.3))
    assert not found.undefined
    assert found.metrics.keys() == {each for each, metric in COUNTED.items() if metric.task == "classification"}

    said, chances = logits.argmax(axis=1), probabilities_of(logits)
    binary = classes == 2
    average = "binary" if binary else "macro"
    # In log-odds: probabilities that round to 1 would be ties.
    odds = odds_of(logits)
    each = (1,) if binary else range(classes)
    area = np.mean([roc_auc_score(y == at, odds[:, at]) for at in each])
    precise = np.mean([average_precision_score(y == at, odds[:, at]) for at in each])
    one_hot = np.eye(classes)[y]
    exact = {
        "sensitivity": recall_score(y, said, average=average),
        "precision": precision_score(y, said, average=average, zero_division=0),
        "f1": f1_score(y, said, average=average),
        "dice": f1_score(y, said, average=average),
        "iou": jaccard_score(y, said, average=average),
        "balanced_accuracy": balanced_accuracy_score(y, said),
        "matthews": matthews_corrcoef(y, said),
        "brier": brier_score_loss(y, chances[:, 1]) if binary else np.square(chances - one_hot).sum(axis=1).mean(),
    }
    if binary:
        exact["specificity"] = recall_score(y, said, pos_label=0)
    for metric, value in exact.items():
        assert found.metrics[metric] == pytest.approx(value, abs=1e-9), metric
    assert abs(found.metrics["auroc"] - area) <= min(1e-4, found.curves["auroc_within"] + 1e-12)
    assert found.metrics["average_precision"] == pytest.approx(precise, abs=1e-4)
    assert found.curves["confusion"] == confusion_matrix(y, said).tolist()


def test_calibration_is_scikit_learns() -> None:
    rng = np.random.default_rng(3)
    odds = rng.normal(size=4000) * 2
    y = (rng.random(4000) < 1 / (1 + np.exp(-0.5 * odds))).astype(int)
    found = over_sites(counts_for(2, ("ece", "brier")), two_logits(odds), y, (0.5, 0.5))
    chance = 1 / (1 + np.exp(-odds))
    observed, expected = calibration_curve(y, chance, n_bins=15)
    rows = found.curves["calibration"]
    assert [row["observed"] for row in rows] == pytest.approx(observed)
    assert [row["predicted"] for row in rows] == pytest.approx(expected, abs=1e-9)
    weights = [row["examples"] / 4000 for row in rows]
    assert found.metrics["ece"] == pytest.approx(np.dot(weights, np.abs(observed - expected)), abs=1e-9)
    assert found.metrics["ece"] > 0.1  # twice as sure as it may be


ODDS = st.floats(-1, 1).map(lambda r: float(np.sign(r) * 10.0 ** (4 * abs(r) - 2)))


@st.composite
def crowded(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Scores of many examples that crowd somewhere: near 0, near 1, or around even odds."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(st.integers(4000, 8000))
    around, spread = draw(
        st.sampled_from([(-12.0, 2.0), (14.0, 3.0), (0.0, 0.05), (0.0, 1.0), (0.0, 20.0), (3.0, 2.0)])
    )
    gap, rate = draw(st.floats(0, 3)), draw(st.floats(0.1, 0.9))
    y = (rng.random(n) < rate).astype(int)
    y[:2] = 0, 1
    odds = around + spread * (rng.normal(size=n) + gap * y)
    decimals = draw(st.sampled_from([None, 1, 3]))  # ties, as trees and rounded scores have them
    return odds if decimals is None else np.round(odds, decimals), y


@settings(max_examples=60, deadline=None)
@given(crowded())
def test_the_area_is_the_pooled_one_within_what_is_told_and_to_1e_4(given_: tuple[np.ndarray, np.ndarray]) -> None:
    odds, y = given_
    found = ranking(histogram(odds, y == 1, FINEST))
    exact = roc_auc_score(y, odds)
    assert found.auroc is not None
    assert found.average_precision is not None
    assert abs(found.auroc - exact) <= found.within + 1e-9
    assert abs(found.auroc - exact) <= 1e-4
    # Examples of one score count together; of a bin with one kind alone nobody can know that they have one.
    near = 1e-3 if len(np.unique(odds)) == len(odds) else 5e-3
    assert abs(found.average_precision - average_precision_score(y, odds)) <= near


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(ODDS, st.booleans()), min_size=2, max_size=60), st.sampled_from([2, 32, 512, FINEST]))
@example([(0.5, True), (0.5, False)], FINEST)
@example([(0.5, True), (0.50001, False)], 2)
def test_the_area_is_never_farther_than_is_told(pairs: list[tuple[float, bool]], bins: int) -> None:
    odds, y = np.array([odd for odd, _ in pairs]), np.array([so for _, so in pairs])
    found = ranking(histogram(odds, y, bins, places=bins > 32))
    if y.all() or not y.any():
        assert found.auroc is None
        return
    assert found.auroc is not None
    # Scores that are one to a 65536th of a bin are told as ties.
    ties = 0.5 * sum(
        bool(abs(a - b) <= 1e-3 * max(abs(a), abs(b), 1e-2)) for a in odds[y] for b in odds[~y]
    ) / (y.sum() * (~y).sum())  # fmt: skip
    assert abs(found.auroc - roc_auc_score(y, odds)) <= found.within + ties + 1e-9


def test_without_places_in_the_bins_small_tables_would_be_off() -> None:
    """The control: counts alone miss what the places in the bins tell."""
    x, y = load_diabetes(return_X_y=True)
    y = (y > np.median(y)).astype(int)
    odds = LogisticRegression().fit(x, y).decision_function(x) * 0.05
    exact = average_precision_score(y, odds)
    with_places, without = (ranking(histogram(odds, y == 1, FINEST, places=places)) for places in (True, False))
    assert abs((with_places.average_precision or 0) - exact) < 1e-4
    assert abs((without.average_precision or 0) - exact) > 3e-4


def test_an_average_of_the_sites_areas_is_another_number() -> None:
    rng = np.random.default_rng(5)
    y = rng.random(3000) < np.repeat([0.1, 0.5, 0.9], 1000)
    odds = rng.normal(size=3000) + y + np.repeat([-3.0, 0.0, 3.0], 1000)
    sites = [roc_auc_score(y[at : at + 1000], odds[at : at + 1000]) for at in (0, 1000, 2000)]
    found = over_sites(counts_for(2, ("auroc",)), two_logits(odds), y.astype(int), (1 / 3, 1 / 3, 1 / 3))
    assert found.metrics["auroc"] == pytest.approx(roc_auc_score(y, odds), abs=1e-4)
    assert found.metrics["auroc"] - np.mean(sites) > 0.1


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), min_size=2, max_size=50))
def test_regression_is_scikit_learns(pairs: list[tuple[float, float]]) -> None:
    said, y = np.array(pairs).T[:, :, None]
    found = over_sites(counts_for(0, OF_NUMBERS), said, y, (0.3, 0.7))
    assert found.metrics["mae"] == pytest.approx(mean_absolute_error(y, said), rel=1e-9, abs=1e-15)
    assert found.metrics["rmse"] == pytest.approx(root_mean_squared_error(y, said), rel=1e-9, abs=1e-15)
    if len(np.unique(y)) == 1:
        assert found.undefined["r2"] == "all values are the same"
    elif np.var(y) > 1e-6:
        assert found.metrics["r2"] == pytest.approx(r2_score(y, said), rel=1e-6, abs=1e-9)


def test_one_class_alone_has_no_area_and_a_reason() -> None:
    logits = two_logits(np.array([0.1, 2.0, -1.0]))
    found = over_sites(counts_for(2), logits, np.zeros(3, int), (0.5, 0.5))
    assert found.undefined["auroc"] == "none of 3 examples is of class 1"
    assert found.undefined["sensitivity"] == "no example is of class 1"
    assert found.metrics["specificity"] == pytest.approx(1 / 3)
    three = np.array([[1.0, 0, 0], [0, 1.0, 0]])
    assert "class 2" in over_sites(counts_for(3), three, np.array([0, 1]), (0.5, 0.5)).undefined["auroc"]


def test_no_examples_and_counts_that_cannot_be_have_reasons() -> None:
    counts = counts_for(2)
    assert set(pooled(counts, np.zeros(counts.words, np.uint64)).undefined) == set(counts.names) & COUNTED.keys()
    rng = np.random.default_rng(0)
    for _ in range(20):
        wild = rng.integers(0, 2**63, counts.words, dtype=np.uint64) * np.uint64(2)
        for words in (wild, np.concatenate([np.array([3, 5], np.uint64), wild[2:]])):
            assert set(pooled(counts, words).undefined) == set(counts.names) & COUNTED.keys()
    wild = rng.integers(0, 2**63, counts_for(0, OF_NUMBERS).words, dtype=np.uint64)
    pooled(counts_for(0, OF_NUMBERS), wild)  # sums of anything are sums


@pytest.mark.parametrize("classes", [2, 3, 10, 40, 64])
def test_what_is_counted_fits_on_the_bus(classes: int) -> None:
    assert counts_for(classes).words <= MOST_WORDS
    assert counts_for(classes).bins == {2: FINEST, 3: 1990, 10: 592, 40: 129, 64: 61}[classes]


def test_a_metric_of_the_other_task_or_of_none_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(
        HanseError, match=r"evaluate.metrics.*auroc.*a metric of regression: loss.*is of classification"
    ):
        check_metrics(["mae", "auroc"], "regression")
    with pytest.raises(HanseError, match=r"evaluate.metrics.*aurok.*a metric of classification: .*auroc"):
        check_metrics(["aurok"], "classification")


def test_what_could_overflow_a_word_is_refused() -> None:
    counts = counts_for(2)
    words = counts_of(counts, np.zeros((5, 2)), np.zeros(5, int))
    words[1] = MOST_EXAMPLES + 1  # of many sites, each with fewer
    assert "more than can be counted together" in pooled(counts, words).undefined["auroc"]
    with pytest.raises(HanseError, match="not finite"):
        counts_of(counts_for(2), np.full((5, 2), np.nan), np.zeros(5, int))
