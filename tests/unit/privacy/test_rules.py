"""What composes with what: a job for every refusal and for every pair that works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.plugins import STRATEGIES, built_in
from hanse_learning.config import BUILT_IN, check_model
from hanse_learning.config.models import has_batch_statistics
from hanse_privacy.rules import check_rules, markdown
from hanse_privacy.rules.pairs import LEGAL
from hanse_privacy.rules.sections import batch_statistics
from hanse_privacy.rules.sum_conditions import COUNTING
from hanse_privacy.rules.table import RULES
from hanse_schemas.job import Job, check_job
from hanse_workflows.submission import check_submitted

MASKED = {"mode": "compensator"}
SGD = {"placement": "local", "mechanism": "dp_sgd", "epsilon": 4.0}
LOCAL = {"placement": "local", "mechanism": "gaussian", "epsilon": 4.0}
SHARES = {"placement": "distributed", "mechanism": "discrete_laplace", "noise": "distributed-gamma", "epsilon": 4.0}
CENTRAL = {"placement": "central", "mechanism": "gaussian", "epsilon": 4.0}
ASKED = {"epsilon": 0.1, "bounds": {"loss": 4.0}}
CHOSEN = {"name": "random_k", "fraction": 0.1}
NORM = {"name": "mlp", "batch_norm": True}
TICKETS = {"algorithm": {"name": "fedltn"}}
SIGNS = {"sign_mask": {"tau": 0.4}}
OVERLAP = {"reduction": {"name": "overlap_mean"}}
CODE = {"name": "mine", "digest": "0" * 64}


def job(**changes: Any) -> Job:
    body: dict[str, Any] = {"rounds": 3, "model": {"name": "logistic"}, "participants": {"minimum": 4}}
    return check_job({**body, **changes})


STUDY: dict[str, Any] = {"workflow": "association_study", "study": {"test": "trend"}, "rounds": 1, "model": {}}

FTRL = {
    "placement": "central", "mechanism": "dp_ftrl", "epsilon": 3.0, "min_separation": 2,
    "matrix": {"name": "banded", "bands": 2},
}  # fmt: skip
SHARED_TURNS = {**FTRL, "placement": "distributed"}
TURNS: dict[str, Any] = {"weighting": "uniform", "participants": {"minimum": 4, "fraction": 0.5}}

REFUSED: dict[str, dict[str, Any]] = {
    "private_study": {**STUDY, "privacy": LOCAL},
    "plain_study": {**STUDY, "secure_aggregation": None},
    "own_rings": {**STUDY, "secure_aggregation": {**MASKED, "bits": 64}},
    "few_cohorts": {**STUDY, "participants": {"minimum": 2}},
    "narrow_by_examples": {"secure_aggregation": {**MASKED, "bits": 16, "largest_weight": 50}},
    "narrow_noise": {"secure_aggregation": {**MASKED, "bits": 16}, "privacy": SHARES, "weighting": "uniform"},
    "rotated_noise": {"secure_aggregation": {**MASKED, "rotate": True}, "privacy": SHARES, "weighting": "uniform"},
    "telling_refusal": {"secure_aggregation": {**MASKED, "out_of_range": "refuse"}},
    "robust": {"secure_aggregation": MASKED, "strategy": {"reduction": {"name": "median"}}},
    "reserved": {"strategy": {"reduction": {"name": "private_mean"}}},
    "chosen_signs": {"secure_aggregation": MASKED, "codec": {"up": [CHOSEN]}, "strategy": SIGNS},
    "noisy_signs": {"secure_aggregation": MASKED, "privacy": SHARES, "weighting": "uniform", "strategy": SIGNS},
    "told_apart": {"secure_aggregation": MASKED, "train": {"algorithm": {"name": "scaffold"}}},
    "coded": {"secure_aggregation": MASKED, "codec": {"up": [{"name": "float16"}]}},
    "coded_model_of_sum": {"secure_aggregation": MASKED, "codec": {"down": [{"name": "float16"}]}},
    "remembered_choice": {"secure_aggregation": MASKED, "codec": {"up": [CHOSEN], "error_feedback": True}},
    "chosen_noise": {
        "privacy": {**SHARES, "noise": "oblivious"}, "weighting": "uniform", "secure_aggregation": MASKED,
        "codec": {"up": [CHOSEN]},
    },
    "coded_model": {"privacy": LOCAL, "codec": {"down": [{"name": "float16"}]}},
    "remembered_pruning": {
        "train": TICKETS, "strategy": OVERLAP,
        "codec": {"up": [{"name": "nonzero"}, {"name": "float16"}], "error_feedback": True},
    },
    "whole_products": {"train": TICKETS, "strategy": OVERLAP, "codec": {"up": [{"name": "low_rank"}]}},
    "counted_pruning": {"train": {"algorithm": "lotteryfl"}},
    "noise_on_pruned": {"train": TICKETS, "strategy": OVERLAP, "privacy": LOCAL},
    "noise_on_zeros": {"privacy": LOCAL, "codec": {"up": [{"name": "nonzero"}]}},
    "summed_inside": {"secure_aggregation": MASKED, "train": {"algorithm": "fedtan"}},
    "central_sign_mask": {"privacy": CENTRAL, "weighting": "uniform", "strategy": SIGNS},
    "unpaid_messages": {"privacy": LOCAL, "train": {"algorithm": "fedtan"}},
    "unpaid_variates": {"privacy": SGD, "train": {"algorithm": {"name": "scaffold", "option": "gradient"}}},
    "unpaid_numbers": {"privacy": LOCAL, "strategy": {"reduction": {"name": "fednova"}}},
    "other_training": {"privacy": SGD, "train": {"algorithm": {"name": "fedprox"}}},
    "few": {"secure_aggregation": {"mode": "compensator", "minimum": 5}},
    "unsummed": {"secure_aggregation": {**MASKED, "metrics": ["loss"]}, "stop": {"metric": "accuracy", "target": 0.9}},
    "threshold": {"secure_aggregation": {"mode": "pairwise", "threshold": 5}},
    "central_metrics": {"privacy": {**CENTRAL, "metrics": ASKED}, "weighting": "uniform"},
    "metrics_of_groups": {"privacy": {**SGD, "metrics": {"epsilon": 0.1, "bounds": {"r2": 1.0}}}},
    "untold_metric": {"privacy": {**LOCAL, "metrics": ASKED}, "stop": {"metric": "accuracy", "target": 0.9}},
    "local_turns": {"privacy": {**FTRL, "placement": "local"}, **TURNS},
    "shared_buffers": {
        "privacy": {**SHARED_TURNS, "matrix": {"name": "blt", "buffers": 1}}, "secure_aggregation": MASKED, **TURNS,
    },
    "prepared_turns": {
        "privacy": {**SHARED_TURNS, "preparation": {"share": 0.1}}, "secure_aggregation": MASKED, **TURNS,
    },
    "metrics_of_turns": {"privacy": {**SHARED_TURNS, "metrics": ASKED}, "secure_aggregation": MASKED, **TURNS},
    "mechanism": {"privacy": {**CENTRAL, "mechanism": "staircase"}},
    "no_delta": {"privacy": {**LOCAL, "delta": 0}},
    "unmasked_shares": {"privacy": SHARES, "weighting": "uniform", "secure_aggregation": {"mode": "ring"}},
    "central_masked": {"privacy": CENTRAL, "weighting": "uniform", "secure_aggregation": MASKED},
    "central_robust": {
        "privacy": CENTRAL, "weighting": "uniform", "strategy": {"reduction": {"name": "trimmed_mean"}},
    },
    "weighted": {"privacy": SHARES, "secure_aggregation": MASKED},
    "batches": {"privacy": SGD, "model": {**NORM, "buffers": {"*": "keep_local"}}},
    "buffers": {"privacy": LOCAL, "model": {**NORM, "buffers": {"*.running_mean": "keep_local"}}},
    "own_code": {"privacy": SGD, "code": CODE},
    "two_clips": {"privacy": SGD, "train": {"clip_norm": 1.0}},
    "weights_of_rows": {"privacy": SGD, "train": {"sample_weights": True}},
    "of_single_examples": {"privacy": LOCAL, "train": {"clipping": {"rule": "automatic"}}},
    "shares": {"privacy": {**LOCAL, "noise": "distributed-gamma"}},
    "no_shares": {"privacy": {**SHARES, "noise": None}, "weighting": "uniform", "secure_aggregation": MASKED},
    "dropouts": {
        "privacy": SHARES, "weighting": "uniform", "secure_aggregation": MASKED,
        "participants": {"minimum": 4, "quorum": 0.8},
    },
    "rounding": {
        "privacy": SHARES, "weighting": "uniform", "secure_aggregation": {**MASKED, "rounding": "stochastic"},
    },
    "third_party": {
        "privacy": {**SHARES, "noise": "oblivious-shuffled"}, "weighting": "uniform",
        "secure_aggregation": {"mode": "pairwise"},
    },
    "shared_choice": {
        "privacy": {**SHARES, "noise": "oblivious-shuffled"}, "weighting": "uniform",
        "secure_aggregation": {**MASKED, "compensators": ["one", "two", "three"], "needed": 2},
    },
    "colluding": {"privacy": {**SHARES, "colluding": 3}, "weighting": "uniform", "secure_aggregation": MASKED},
    "literal": {"privacy": {**LOCAL, "scale": "literal"}},
    "adaptive": {"privacy": {**LOCAL, "adaptive_clip": 0.5}},
    "unfit_matrix": {"privacy": {**FTRL, "matrix": {"name": "banded", "bands": 4}}, **TURNS},
    "too_many": {"privacy": FTRL, "weighting": "uniform"},
    "unknown_turns": {"privacy": FTRL, **TURNS, "workflow": "cyclic"},
    "no_site_epsilon": {"privacy": {**LOCAL, "site_epsilon": {"a": 1.0, "b": 0.0}}},
    "per_site": {"privacy": {**CENTRAL, "site_epsilon": {"a": 1.0}}, "weighting": "uniform"},
}  # fmt: skip
"""By the name of the rule's condition."""

WORKS: list[dict[str, Any]] = [
    {"secure_aggregation": MASKED, "weighting": "examples"},
    {"secure_aggregation": MASKED, "strategy": {"optimizer": {"name": "yogi"}}},
    {"secure_aggregation": MASKED, "strategy": {**SIGNS, "optimizer": {"name": "yogi"}}},
    {"secure_aggregation": MASKED, "strategy": SIGNS, "privacy": LOCAL},
    {"secure_aggregation": {**MASKED, "bits": 8, "rounding": "stochastic"}, "weighting": "uniform"},
    {"secure_aggregation": MASKED, "codec": {"up": [CHOSEN]}},
    {"secure_aggregation": MASKED, "privacy": SHARES, "weighting": "uniform", "codec": {"up": [CHOSEN]}},
    {
        "train": {"algorithm": {"name": "fedltn"}}, "strategy": OVERLAP, "model": {"name": "mlp"},
        "codec": {"up": [{"name": "nonzero"}, {"name": "float16"}]},
    },
    {"train": {"algorithm": {"name": "fedltn", "zeros": True}}, "model": {"name": "mlp"}},
    {"secure_aggregation": MASKED, "train": {"algorithm": {"name": "fedltn", "zeros": True}}},
    {"privacy": LOCAL, "train": {"algorithm": {"name": "lotteryfl"}}},
    {"secure_aggregation": MASKED, "model": NORM},
    {"secure_aggregation": MASKED, "code": CODE, "model": {}},
    {"secure_aggregation": MASKED, "participants": {"minimum": 4, "fraction": 0.5, "quorum": 0.8}},
    {"secure_aggregation": {"mode": "pairwise"}, "train": {"algorithm": "fedtan"}},
    {"secure_aggregation": MASKED, "initial_model": "0" * 64},
    {"secure_aggregation": MASKED, "privacy": SGD},
    {"secure_aggregation": {"mode": "pairwise"}, "privacy": {**SHARES, "colluding": 2}, "weighting": "uniform"},
    {"secure_aggregation": MASKED, "privacy": {**SHARES, "noise": "oblivious"}, "weighting": "uniform"},
    {"privacy": LOCAL, "strategy": {"reduction": {"name": "median"}}},
    {"privacy": LOCAL, "weighting": "examples"},
    {"privacy": CENTRAL, "weighting": "uniform", "strategy": {"optimizer": {"name": "adam"}}},
    {"privacy": SGD, "initial_model": "0" * 64},
    {"privacy": FTRL, **TURNS},
    {"privacy": {**SHARED_TURNS, "colluding": 1}, "secure_aggregation": MASKED, **TURNS},
    {"privacy": SGD, "participants": {"minimum": 4, "fraction": 0.5}},
    {"privacy": SGD, "train": {"optimizer": {"name": "adam"}}, "model": {"name": "mlp", "dropout": 0.1}},
    {
        "privacy": SGD, "model": {"name": "cnn"},
        "train": {
            "schedule": {"name": "cosine", "length": 3}, "clipping": {"per": "layer"}, "weights_average": 0.9,
            "augmentation": {"flip": 0.5, "copies": 2},
        },
    },
    {"privacy": SGD, "train": {"algorithm": "scaffold", "optimizer": {"name": "sgd", "lr": 0.1}}},
    {"privacy": LOCAL, "train": {"algorithm": {"name": "moon"}}, "model": {"name": "mlp"}},
    {"privacy": LOCAL, "code": CODE, "model": {}},
    {"privacy": {**LOCAL, "mechanism": "laplace"}, "model": {**NORM, "buffers": {"norm*": "keep_local"}}},
]  # fmt: skip
"""In the order of the table."""


def condition(rule: Any) -> str:
    """The name of the function that a rule's condition wraps."""
    wrapped = rule.found.__closure__
    return str((wrapped[0].cell_contents if wrapped else rule.found).__name__)


@pytest.mark.parametrize("rule", RULES, ids=condition)
def test_each_refusal_names_the_field_the_reason_and_what_to_do(rule: Any) -> None:
    with pytest.raises(HanseError) as caught:
        check_rules(job(**REFUSED[condition(rule)]))
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert caught.value.message.endswith(rule.reason)
    assert caught.value.hint == rule.hint


@pytest.mark.parametrize(
    "number", range(len(LEGAL)), ids=lambda number: f"{LEGAL[number].one} and {LEGAL[number].other}"
)
def test_every_pair_that_the_table_allows_is_a_job_that_can_be_submitted(number: int) -> None:
    check_submitted(job(**WORKS[number]))


@pytest.mark.parametrize("codec", [{"up": [{"name": "top_k", "fraction": 0.1}], "error_feedback": True},
                                   {"up": [{"name": "low_rank"}]}], ids=["feedback", "products"])  # fmt: skip
def test_whole_updates_of_tickets_go_with_what_sparse_ones_do_not(codec: dict[str, Any]) -> None:
    """With `zeros` a pruned weight is sent, and counts, as any other."""
    whole = {"algorithm": {"name": "fedltn", "zeros": True}}
    check_submitted(job(train=whole, codec=codec))
    with pytest.raises(HanseError, match="what is pruned is left unsaid"):
        check_submitted(job(train=TICKETS, strategy=OVERLAP, codec=codec))


@pytest.mark.parametrize(
    ("strategy", "told"),
    [
        ({}, "strategy.reduction.name: weighted_mean"),
        ({"reduction": {"name": "median"}}, "strategy.reduction.name: median"),
        ({"reduction": {"name": "krum", "byzantine": 0}}, "strategy.reduction.name: krum"),
        ({"reduction": {"name": "norm_clipping", "norm": 1.0}}, "strategy.reduction.name: norm_clipping"),
        ({**OVERLAP, **SIGNS}, "strategy.sign_mask: "),
    ],
    ids=str,
)
def test_who_has_pruned_a_weight_is_in_no_reduction_that_takes_that_for_no_change(
    strategy: dict[str, Any], told: str
) -> None:
    with pytest.raises(HanseError, match=f"{told}.* with train.algorithm: fedltn: a site that has pruned a weight"):
        check_submitted(job(train=TICKETS, strategy=strategy, model={"name": "mlp"}))
    whole = {"algorithm": {"name": "fedltn", "zeros": True}}
    check_submitted(job(train=whole, strategy=strategy, model={"name": "mlp"}))


def test_all_reductions_are_known_by_what_they_make_of_who_says_nothing() -> None:
    known = {plugin.name for plugin in built_in(STRATEGIES)} - {"private_mean"}  # which no job names
    assert known == COUNTING | {"overlap_mean"}


def test_correlated_noise_that_is_never_added_up_is_refused_for_what_it_is() -> None:
    with pytest.raises(HanseError, match="what each site tells alone is never added up"):
        check_rules(job(privacy={**FTRL, "placement": "local"}, **TURNS))


def test_no_quorum_or_colluding_lets_a_member_of_correlated_noise_stay_away() -> None:
    away = {**TURNS, "participants": {"minimum": 4, "fraction": 0.5, "quorum": 0.75}}
    for colluding in (0, 1):
        with pytest.raises(HanseError, match=r"participants\.quorum: 0\.75"):
            check_rules(job(privacy={**SHARED_TURNS, "colluding": colluding}, secure_aggregation=MASKED, **away))


def test_every_rule_and_every_pair_has_a_job() -> None:
    assert {condition(rule) for rule in RULES} == REFUSED.keys()
    assert len(LEGAL) == len(WORKS)


def test_a_job_without_masks_and_noise_passes_the_rules() -> None:
    check_rules(job())
    check_rules(job(strategy={"reduction": {"name": "median"}, "optimizer": {"name": "adam"}}))


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_batch_statistics_are_known_for_every_built_in_model(name: str) -> None:
    for section in ({}, {"batch_norm": True}, {"normalization": "batch"}, {"normalization": "group"}):
        model = {"name": name, **section}
        try:
            config = check_model(model)
        except HanseError:
            continue  # this architecture has no such choice
        assert (batch_statistics(job(model=model)) is not None) == has_batch_statistics(config)


def test_the_documentation_shows_this_very_table() -> None:
    """Renew it with `python -m hanse_privacy.rules`."""
    shown = (Path(__file__).parents[3] / "docs" / "combinations.md").read_text()
    assert markdown() in shown


def test_the_rules_load_no_numpy() -> None:
    program = "import sys, hanse_privacy.rules; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=120).returncode == 0
