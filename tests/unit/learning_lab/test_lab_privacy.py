"""Rows with privacy, codecs and absent sites: as in a job, and the same bits for the same seed."""

from __future__ import annotations

from typing import Any

import pytest

from hanse_fabric.errors import HanseError
from unit.learning_lab.lab_experiments import cells, played

DP_SGD = {"placement": "local", "mechanism": "dp_sgd", "clip": 1.0, "epsilon": 4.0}
CENTRAL = {"placement": "central", "mechanism": "gaussian", "clip": 1.0, "epsilon": 4.0}
STEPS = {"train": {"batch_size": 64, "steps": 4, "optimizer": {"lr": 0.5}}, "weighting": "uniform"}


@pytest.mark.parametrize("privacy", [DP_SGD, CENTRAL, CENTRAL | {"placement": "local"}])
def test_a_private_row_spends_what_its_job_allows_and_has_the_same_bits_again(privacy: dict[str, Any]) -> None:
    found = played(
        **STEPS, privacy=privacy, algorithms={"private": {}, "again": {"rounds": 2}, "not": {"privacy": None}}
    )
    assert found["private"].epsilon == pytest.approx(4.0, rel=0.01)
    assert found["not"].epsilon is None
    assert found["private"].metrics == found["again"].metrics
    assert found["private"].metrics["loss"] != found["not"].metrics["loss"]


def test_noise_of_next_to_nothing_and_a_clip_that_nothing_reaches_change_next_to_nothing() -> None:
    full = {"train": {"batch_size": 100_000, "steps": 1, "optimizer": {"lr": 0.5}}, "model": {"name": "logistic"}}
    small = {"epsilon": None, "noise_multiplier": 1e-7, "clip": 1e3}
    found = played(
        **full, weighting="uniform",
        algorithms={"plain": {}, "dp_sgd": {"privacy": DP_SGD | small}, "central": {"privacy": CENTRAL | small}},
    )  # fmt: skip
    for name in ("dp_sgd", "central"):
        assert found[name].metrics["loss"] == pytest.approx(found["plain"].metrics["loss"], rel=1e-3)


def test_more_noise_costs_less_and_learns_less() -> None:
    rows = {f"z {z:g}": {"privacy": {"noise_multiplier": z}} for z in (0.5, 20)}
    base = {key: value for key, value in DP_SGD.items() if key != "epsilon"}
    found = played(**STEPS, rounds=4, privacy=base, algorithms=rows)
    less, more = found.values()
    assert less.epsilon is not None
    assert more.epsilon is not None
    assert more.epsilon < less.epsilon
    assert more.metrics["loss"][-1] > less.metrics["loss"][-1]


def test_noise_that_is_correlated_over_a_run_is_charged_once_and_its_sites_rest() -> None:
    correlated = {"mechanism": "dp_ftrl", "matrix": {"name": "banded", "bands": 2}, "min_separation": 2}
    found = played(
        **STEPS, sites=6, rounds=4, participants={"fraction": 0.5}, privacy=CENTRAL | correlated,
        algorithms={"a": {}, "again": {"rounds": 4}},
    )  # fmt: skip
    assert found["a"].rounds == (1, 2, 3, 4)
    assert found["a"].epsilon == pytest.approx(4.0, rel=0.01)
    assert found["a"].metrics == found["again"].metrics


def test_a_row_takes_the_experiments_codec_changes_it_or_has_none() -> None:
    found = played(
        codec={"up": [{"name": "float16"}]},
        algorithms={
            "as said": {},
            "lossy": {"codec": {"up": [{"name": "integers", "bits": 8}]}},
            "plain": {"codec": None},
        },
    )
    assert found["plain"].sent[0] > found["as said"].sent[0] > found["lossy"].sent[0]


def test_absent_sites_are_not_waited_for_where_the_quorum_allows_it_and_end_the_run_where_not() -> None:
    """Five sites, of which a third stays away: the seed decides who."""
    there = played(rounds=4, participants={"quorum": 0.2, "absent": 0.35})["FedAvg"]
    whole = played(rounds=4)["FedAvg"]
    assert (there.failed, there.rounds) == ("", (1, 2, 3, 4))
    assert there.metrics["loss"] != whole.metrics["loss"]
    assert there.sent[0] < whole.sent[0] or there.sent[1] < whole.sent[1]
    short = played(rounds=4, participants={"absent": 0.35})["FedAvg"]
    assert short.failed
    assert len(short.rounds) < 4


def test_what_the_lab_does_not_play_is_refused_before_anything_is_played() -> None:
    shared = {"placement": "distributed", "mechanism": "discrete_gaussian", "epsilon": 1.0}
    with pytest.raises(HanseError, match=r"algorithms\.FedAvg: .*'distributed' is not local or central"):
        cells(privacy=shared, weighting="uniform")
    with pytest.raises(HanseError, match=r"algorithms\.FedAvg: .*epsilon"):
        cells(privacy=DP_SGD | {"epsilon": 0})
    with pytest.raises(HanseError, match=r"algorithms\.FedAvg: codec\.up\[0\]"):
        cells(codec={"up": [{"name": "no such"}]})
