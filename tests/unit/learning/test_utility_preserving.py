"""The utility-preserving checker: each component is accepted or refused with its reason.

Source: Nasirigerdeh, Rueckert and Kaissis (2023), which says of each component whether it preserves utility.
"""

from __future__ import annotations

from typing import Any

import pytest

from hanse_fabric.errors import HanseError
from hanse_learning.utility import check_utility, require_utility
from hanse_schemas.job import Job, check_job


def job_of(**changes: Any) -> Job:
    body: dict[str, Any] = {
        "rounds": 10, "model": {"name": "mlp"}, "train": {"algorithm": "fedfgd"},
        "strategy": {"optimizer": {"name": "sgd", "lr": 1.0, "momentum": 0.9}},
    }  # fmt: skip
    return check_job(body | changes)


def test_full_gradients_with_momentum_at_the_server_preserve_utility() -> None:
    findings = check_utility(job_of())
    assert all(finding.ok for finding in findings)
    assert {"model", "train.loss", "train.optimizer", "train.algorithm", "weighting"} <= {f.component for f in findings}
    require_utility(job_of())


def test_one_mini_batch_a_round_preserves_utility_and_the_finding_names_its_condition() -> None:
    findings = check_utility(job_of(train={"algorithm": "fedsmb", "batch_size": 10}))
    assert all(finding.ok for finding in findings)
    assert any("divides their number" in finding.reason for finding in findings)


@pytest.mark.parametrize(
    ("changes", "component", "why"),
    [
        ({"model": {"name": "mlp", "batch_norm": True}}, "model", "mixes the examples"),
        ({"model": {"name": "knresnet13"}}, "model.kernel.dropout", "dropout of the statistics is random"),
        ({"model": {"name": "alexnet"}}, "model.dropout", "dropout is random"),
        ({"model": {"name": "resnet18"}}, "model", "mixes the examples"),
        ({"model": {"name": "mlp", "dropout": 0.5}}, "model.dropout", "random"),
        ({"train": {"algorithm": "fedfgd", "optimizer": {"name": "adam"}}}, "train.optimizer", "not linear"),
        ({"train": {"algorithm": "fedfgd", "optimizer": {"momentum": 0.9}}}, "train.optimizer.momentum", "anew"),
        ({"train": {"algorithm": "fedfgd", "clip_norm": 1.0}}, "train.clip_norm", "clipped"),
        ({"strategy": {"optimizer": {"name": "adam"}}}, "strategy.optimizer", "not linear"),
        ({"strategy": {"reduction": {"name": "median"}}}, "strategy.reduction", "not the weighted mean"),
        ({"train": {"epochs": 1, "batch_size": 32}}, "train.algorithm", "several local steps"),
        ({"train": {"epochs": 2, "batch_size": "all"}}, "train.algorithm", "several local steps"),
        ({"train": {"algorithm": "fedcmb", "steps": 5}}, "train.algorithm", "several local steps"),
        ({"weighting": "uniform"}, "weighting", "not the mean over examples"),
        ({"model": {"name": "mlp", "state": [{"layers": "output", "keep": "local"}]}}, "model.state", "not shared"),
        ({"model": {"name": "mlp", "state": [{"match": "h*", "keep": "frozen"}]}}, "model.state", "do not change"),
        ({"strategy": {"optimizer": {"name": "feddyn"}}}, "strategy.optimizer", "former rounds"),
        ({"strategy": {"sign_mask": {"tau": 0.4}}}, "strategy.sign_mask", "signs disagree"),
        ({"participants": {"fraction": 0.5}}, "participants.fraction", "not sampled"),
        ({"participants": {"quorum": 0.5}}, "participants.quorum", "late"),
        (
            {"privacy": {"placement": "central", "mechanism": "gaussian", "epsilon": 1.0}},
            "privacy",
            "price of the guarantee",
        ),
    ],
)
def test_each_component_that_does_not_is_named_with_its_reason(
    changes: dict[str, Any], component: str, why: str
) -> None:
    broken = [finding for finding in check_utility(job_of(**changes)) if not finding.ok]
    assert [finding.component for finding in broken] == [component]
    assert why in broken[0].reason
    with pytest.raises(HanseError) as caught:
        require_utility(job_of(**changes))
    assert component in caught.value.message


KEPT = {"lr": 0.1, "momentum": 0.9, "across_rounds": True}


def test_momentum_that_goes_on_at_the_sites_preserves_utility_also_with_a_falling_rate() -> None:
    train = {"algorithm": "fedfgd", "optimizer": KEPT, "schedule": {"factor": 0.9, "every_rounds": 2}}
    assert all(finding.ok for finding in check_utility(job_of(train=train, strategy={})))


@pytest.mark.parametrize(
    ("train", "component"),
    [
        ({"algorithm": "fedfgd", "optimizer": KEPT}, "strategy.optimizer.momentum"),
        ({"algorithm": "fedfgd", "schedule": {"factor": 0.9, "every_rounds": 2}}, "train.schedule"),
    ],
)
def test_momentum_at_the_server_goes_neither_with_the_sites_nor_with_a_falling_rate(
    train: dict[str, Any], component: str
) -> None:
    broken = [finding for finding in check_utility(job_of(train=train)) if not finding.ok]
    assert [finding.component for finding in broken] == [component]


def test_site_code_never_counts_as_utility_preserving() -> None:
    findings = check_utility(job_of(code={"name": "mine", "digest": "a" * 64}))
    assert [(finding.component, finding.ok) for finding in findings] == [("code", False)]


@pytest.mark.parametrize("loss", ["cross_entropy", "binary", {"name": "focal", "gamma": 1.5}])
def test_losses_that_are_means_over_examples_preserve_utility(loss: Any) -> None:
    findings = check_utility(job_of(train={"algorithm": "fedfgd", "loss": loss}))
    assert all(finding.ok for finding in findings)


@pytest.mark.parametrize("name", ["fedprox", "scaffold", "moon", "ditto", "fedrep", "per_fedavg"])
def test_algorithms_that_change_local_training_do_not_count_as_utility_preserving(name: str) -> None:
    findings = check_utility(job_of(train={"algorithm": name, "steps": 1, "batch_size": "all"}))
    assert "train.algorithm" in [finding.component for finding in findings if not finding.ok]


def test_a_layer_that_nobody_knows_is_refused_by_its_name() -> None:
    with pytest.raises(HanseError, match=r"model.*attention.*built in are"):
        check_utility(job_of(model={"name": "attention"}))


def test_kernel_normalization_without_dropout_preserves_utility() -> None:
    model = {"name": "knresnet18", "kernel": {"dropout": 0, "final_dropout": 0}}
    require_utility(job_of(model=model))
    assert any(f.component == "model.kernel.dropout" and f.ok for f in check_utility(job_of(model=model)))


def test_masks_preserve_utility_but_for_rounding() -> None:
    findings = check_utility(job_of(secure_aggregation={"mode": "compensator"}))
    assert next(f for f in findings if f.component == "secure_aggregation").ok
