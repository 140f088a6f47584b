"""A project's terms: one digest for all that they say, and what of a job goes beyond them."""

from __future__ import annotations

from typing import Any

import pytest

from hanse_fabric.errors import HanseError
from hanse_schemas.job import Job
from hanse_schemas.terms import AskedTerms, ProjectTerms

SCHEMA: dict[str, Any] = {
    "kind": "tabular", "features": [{"name": "crp", "unit": "mg/l"}], "target": "died", "classes": 2,
}  # fmt: skip
ASKED: dict[str, Any] = {"owner": "Ward 5, ward5@example.org", "purpose": "who needs a bed"}


def terms(*, schema: dict[str, Any] | None = None, version: int = 1, **asked: Any) -> ProjectTerms:
    return ProjectTerms.model_validate(
        {"project": "triage", "version": version, "asked": ASKED | asked, "data_schema": schema or SCHEMA}
    )


CHANGES: list[dict[str, Any]] = [
    {"owner": "Ward 6"}, {"purpose": "who pays"}, {"workflows": ["federated_averaging"]}, {"algorithms": ["fedprox"]},
    {"protocols": []}, {"masked": True}, {"noise": True}, {"epsilon": 2.0}, {"minimum_sites": 5},
    {"told": ["how many patients it has"]},
]  # fmt: skip


def test_whatever_the_terms_say_changes_their_digest() -> None:
    columns = [terms(schema=SCHEMA | {"features": [{"name": "crp", "unit": unit}]}) for unit in ("mg/l", "mg/dl")]
    every = [terms(), terms(version=2), columns[1], *(terms(**change) for change in CHANGES)]
    assert len({each.digest for each in every}) == len(every)
    assert {name for change in CHANGES for name in change} == set(AskedTerms.model_fields), "no field is left out"
    assert columns[0].digest == terms().digest
    assert ProjectTerms.decode(terms().encode()).digest == terms().digest


def test_each_change_is_said_in_words() -> None:
    for change in CHANGES:
        assert terms(**change).in_words() != terms().in_words(), change


def job(**changes: Any) -> Job:
    return Job.model_validate({"rounds": 2, "model": {"name": "mlp"}, **changes})


MASKED = {"mode": "compensator", "minimum": 3}
NOISE = {"placement": "local", "mechanism": "dp_sgd", "clip": 1.0, "epsilon": 2.0, "delta": 1e-5}


def measured(epsilon: float, mechanism: str = "dp_sgd") -> dict[str, Any]:
    """Noise of epsilon 1, and metrics that cost so much in the one evaluation; other than dp_sgd tells them of each of
    two rounds' training, too."""
    return NOISE | {"epsilon": 1.0, "mechanism": mechanism, "metrics": {"epsilon": epsilon, "bounds": {"loss": 1.0}}}


@pytest.mark.parametrize(
    ("asked", "beyond", "within"),
    [
        ({"workflows": ["association_study"]}, {}, None),
        ({"algorithms": ["fedprox"]}, {}, {"train": {"algorithm": {"name": "fedprox", "mu": 0.1}}}),
        ({"algorithms": ["fedavg"]}, {"code": {"name": "mine", "digest": "0" * 64}}, {}),
        ({"protocols": ["calibration"]}, {"evaluate": {"metrics": ["auroc"]}}, {"evaluate": {"metrics": ["brier"]}}),
        ({"masked": True}, {}, {"secure_aggregation": MASKED}),
        ({"masked": True}, {"secure_aggregation": MASKED | {"mode": "ring"}}, {"secure_aggregation": MASKED}),
        ({"noise": True}, {}, {"privacy": NOISE}),
        ({"epsilon": 2.0}, {"privacy": NOISE | {"epsilon": 2.5}}, {"privacy": NOISE}),
        ({"epsilon": 2.0}, {"privacy": NOISE | {"delta": 1e-4}}, {"privacy": NOISE | {"delta": 1e-6}}),
        ({"epsilon": 2.0}, {"privacy": measured(1.1)}, {"privacy": measured(1.0)}),
        ({"epsilon": 2.0}, {"privacy": measured(0.4, "laplace")}, {"privacy": measured(0.3, "laplace")}),
        ({"epsilon": 2.0}, {"privacy": NOISE | {"site_epsilon": {"north": 3.0}}}, {}),
        ({"epsilon": 2.0}, {"privacy": NOISE | {"epsilon": None, "noise_multiplier": 9.0}}, {}),
        ({"minimum_sites": 3}, {"participants": {"minimum": 2}}, {"participants": {"minimum": 3}}),
    ],
)
def test_what_a_job_asks_beyond_the_terms_is_named(
    asked: dict[str, Any], beyond: dict[str, Any], within: dict[str, Any] | None
) -> None:
    agreed = terms(**asked)
    (found,) = agreed.broken_by(job(**beyond))
    assert "agreed: " in found
    if within is not None:
        assert agreed.broken_by(job(**within)) == []


@pytest.mark.parametrize(
    "wrong", [{"purpose": ""}, {"owner": "a\nb"}, {"epsilon": 0}, {"protocols": ["all"]}, {"x": 1}]
)
def test_terms_that_nobody_could_keep_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises((HanseError, ValueError)):
        terms(**wrong)
