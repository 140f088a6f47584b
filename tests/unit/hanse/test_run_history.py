"""A run's finished rounds: by site, small curves, bytes, and what it took to reach a target."""

from __future__ import annotations

from typing import Any

import pytest

from hanse.display import metrics_table
from hanse.history import History, size_text, sparkline
from hanse_fabric.errors import HanseError
from hanse_schemas.targets import Reached

ROUNDS: list[dict[str, Any]] = [
    {
        "round": 1,
        "metrics": {"accuracy": 0.6, "accuracy_min": 0.5, "loss": 1.0},
        "sites": {"a": {"accuracy": 0.7}, "b": {"accuracy": 0.5}},
        "bytes": {"down": 30, "up": 10},
    },
    {"round": 2, "metrics": {"train_loss": 0.9}, "sites": {}, "bytes": {"down": 20, "up": 10}},
    {
        "round": 3,
        "metrics": {"accuracy": 0.8, "accuracy_min": 0.8, "loss": 0.5},
        "sites": {"b": {"accuracy": 0.8}},
        "bytes": {"down": 30, "up": 10},
    },
]


def test_metrics_are_told_over_all_sites_and_by_site_with_gaps_where_none_was_measured() -> None:
    history = History(ROUNDS)
    assert history.metric == "accuracy"
    assert history.mean("accuracy") == [0.6, None, 0.8]
    assert history.mean_of_sites("accuracy") == [0.6, None, 0.8]
    assert history.minimum("accuracy") == [0.5, None, 0.8]
    assert history.sites("accuracy") == {"a": [0.7, None, None], "b": [0.5, None, 0.8]}
    assert (history.down, history.up) == (80, 30)
    assert history.table().rows[-1] == ("b", "0.5000", "0.8000", "0.8000", "3", "▁·█")


def test_a_history_says_in_which_round_and_after_how_many_bytes_a_target_was_reached() -> None:
    history = History(ROUNDS)
    assert history.reached(0.6) == Reached(1, 40)
    assert history.reached(0.7) == Reached(3, 110)
    assert history.reached(0.9) is None
    assert history.reached(0.7, "loss") == Reached(3, 110)  # smaller is better
    assert history.reached(0.7, site="a") == Reached(1, 40)
    later = History([{**ROUNDS[0], "round": 8}])
    assert later.reached(0.6) == Reached(8, 40)


def test_curves_are_those_of_the_newest_evaluation_and_what_is_not_there_is_said() -> None:
    drawn = {"curves": {"confusion": [[3, 1], [0, 2]]}, "undefined": {"auroc": "none of 6 examples is of class 1"}}
    history = History([ROUNDS[0], {**ROUNDS[1], **drawn}, ROUNDS[2]])
    assert history.curves() == {"round": 2, "confusion": [[3, 1], [0, 2]]}
    assert history.curves(2) == history.curves()
    assert history.undefined == {"auroc": "none of 6 examples is of class 1"}
    with pytest.raises(HanseError, match="curves of round 3: there are those of round 2"):
        history.curves(3)
    with pytest.raises(HanseError, match="curves of a round: there are none"):
        History(ROUNDS).curves()
    assert History(ROUNDS).undefined == {}


def test_a_history_tells_what_passed_on_the_wire_beside_the_formulas() -> None:
    passed = {"bus_up": 7, "bus_down": 5, "store_up": 1000, "store_down": 2000}
    wire = [{"round": 0, "sites": {"a": passed}}, {"round": 1, "sites": {"a": passed, "b": passed}}]
    history = History([{**ROUNDS[0], "formula": {"down": 28, "up": 9}}], wire)
    assert history.wire[1]["b"] == passed
    assert history.on_the_wire() == {name: 3 * size for name, size in passed.items()}
    assert history.traffic() == (
        "30 B of models to the sites, 10 B of updates from them (training by the formulas: 28 B and 9 B); with all "
        "that controls the run the hub saw 6.01 kB down and 3.02 kB up"
    )
    assert History(ROUNDS).traffic() == "80 B of models to the sites, 30 B of updates from them"


def test_a_metric_that_was_not_measured_is_refused_with_a_list_of_those_that_were() -> None:
    with pytest.raises(HanseError, match="accuracy, accuracy_min, loss, train_loss"):
        History(ROUNDS).reached(0.5, "f1")
    with pytest.raises(HanseError, match=r"site.*a, b"):
        History(ROUNDS).reached(0.5, site="c")


def test_the_best_loss_is_the_smallest() -> None:
    assert History(ROUNDS).table("loss").rows == [("all examples", "1.0000", "0.5000", "0.5000", "3", "█·▁")]


def test_a_frame_of_metrics_is_indexed_by_round_and_site() -> None:
    assert History(ROUNDS).frame().loc[(3, "b"), "accuracy"] == 0.8
    assert list(History([]).frame().index.names) == ["round", "site"]
    assert list(metrics_table(ROUNDS)["bytes_down"]) == [30, 20, 30]


def test_a_run_without_metrics_or_with_older_events_is_shown_all_the_same() -> None:
    assert "nothing was measured" in repr(History([]))
    assert "nothing was measured" in History([{"round": 1, "metrics": None}])._repr_html_()
    assert History([{"round": 1, "metrics": {"accuracy": 1.0}}]).traffic() == ""
    assert "accuracy" in repr(History(ROUNDS))


@pytest.mark.parametrize(
    ("values", "shown"),
    [([], ""), ([None], ""), ([0.5, 0.5], "▄▄"), ([0.0, 1.0, None, 0.5], "▁█·▅")],
)
def test_a_sparkline_runs_from_the_smallest_value_to_the_largest(values: list[float | None], shown: str) -> None:
    assert sparkline(values) == shown


def test_a_sparkline_draws_the_newest_values_only() -> None:
    assert len(sparkline([float(n) for n in range(100)])) == 30


@pytest.mark.parametrize(
    ("size", "shown"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1_234_567, "1.23 MB"), (123_456_789, "123 MB")]
)
def test_sizes_have_three_digits(size: int, shown: str) -> None:
    assert size_text(size) == shown
