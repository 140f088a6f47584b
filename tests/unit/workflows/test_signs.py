"""What people are told of metrics that stand still or get worse: once, and not where a run does well."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from hanse_workflows.signs import STILL, WORSE, Signs


def told(*evaluations: dict[str, float]) -> list[tuple[int, str]]:
    """Warnings with the evaluation, from 1, at which they come."""
    signs = Signs()
    return [(at, warning) for at, metrics in enumerate(evaluations, 1) for warning in signs.observe(metrics)]


def of(name: str, values: Sequence[float]) -> list[dict[str, float]]:
    """Evaluations in which everything else improves."""
    return [{name: value, "loss": 1 / at} for at, value in enumerate(values, 1)]


def test_a_model_that_predicts_one_class_is_told_after_five_rounds_and_once() -> None:
    [(at, warning)] = told(*of("matthews", [0.0] * 20))
    assert at == STILL
    assert warning.startswith("matthews has been 0.0000 for 5 rounds: the model predicts one class; ")


def test_it_is_told_again_where_it_comes_again() -> None:
    assert [at for at, _ in told(*of("matthews", [0.0] * 7 + [0.2] + [0.0] * 7))] == [5, 13]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("auroc", 0.5, "ranks no better than chance"), ("sensitivity", 0.0, "finds no positive example"),
        ("balanced_accuracy", 0.5, "predicts one class"),
    ],
)  # fmt: skip
def test_other_metrics_that_say_so_are_read_too(name: str, value: float, said: str) -> None:
    [(_, warning)] = told(*of(name, [value] * 6))
    assert said in warning


def test_a_loss_that_stands_still_is_told() -> None:
    [(at, warning)] = told(*({"loss": 0.6931, "accuracy": 0.5} for _ in range(9)))
    assert (at, warning.split(";")[0]) == (5, "loss has been 0.6931 for 5 rounds: the model does not change")


def test_a_loss_that_rises_and_stays_high_is_told_once() -> None:
    losses = [0.7, 0.4, 0.9, 3.0, 11.0, 90.0, 800.0]
    [(at, warning)] = told(*({"loss": loss} for loss in losses))
    assert at == 2 + WORSE
    assert warning.startswith("loss is 11, and for 3 rounds was more than twice its best value, 0.4: training diverges")


def test_control_runs_that_do_well_are_told_nothing() -> None:
    perfect = [{"loss": 0.5 / at, "matthews": 1.0, "accuracy": 1.0, "auroc": 1.0} for at in range(1, 40)]
    bumpy = [{"loss": loss, "matthews": 0.1 * at} for at, loss in enumerate([0.7, 0.5, 1.2, 0.5, 1.3, 1.1, 0.9])]
    converged = [{"loss": 0.2 + 1e-6 / at, "matthews": 0.9} for at in range(1, 40)]
    other = [{"loss": 1 / at, "lives_saved": 3.0, "matthews_min": 0.0} for at in range(1, 40)]
    assert list(itertools.chain(*(told(*run) for run in (perfect, bumpy, converged, other)))) == []
