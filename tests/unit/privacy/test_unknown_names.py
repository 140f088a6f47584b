"""Every name that there is of privacy has a branch of its own; one that nobody knows is an error, never another's."""

from __future__ import annotations

from typing import Any, cast, get_args

import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.privacy import Privacy
from hanse_privacy.accounting.accountant import AccountantName, make_accountant
from hanse_privacy.accounting.calibration import amount_of, noise_for, noise_of_amount
from hanse_privacy.accounting.events import EventKind, ReleaseEvent
from hanse_privacy.accounting.rdp import curve_of
from hanse_privacy.correlated.optimum import matrix_of
from hanse_privacy.noise.labels import coalitions
from hanse_privacy.report import describe, report
from hanse_schemas.job import STUDY, check_job
from hanse_schemas.secure_aggregation import SecureAggregation

UNKNOWN = cast("Any", "hearsay")


def names_of(field: str) -> tuple[Any, ...]:
    """What a field of the section `privacy` may be."""
    annotation = Privacy.model_fields[field].annotation
    literals = [
        each for each in (annotation, *get_args(annotation)) if all(isinstance(one, str) for one in get_args(each))
    ]
    return tuple(name for literal in literals for name in get_args(literal))


def private(**changes: Any) -> Privacy:
    body = {"placement": "distributed", "mechanism": "discrete_laplace", "noise_multiplier": 4.0} | changes
    return Privacy.model_validate(body)


@pytest.mark.parametrize("kind", get_args(EventKind))
def test_every_kind_of_event_has_an_amount_an_epsilon_and_a_curve_or_is_refused_by_name(kind: EventKind) -> None:
    event = ReleaseEvent(kind, 0.5)
    assert event.epsilon > 0
    if kind == "chance":  # no noise makes it smaller, and no curve tells it
        for refused in (lambda: amount_of(kind, 2.0), lambda: noise_of_amount(kind, 2.0), lambda: curve_of(event)):
            with pytest.raises(HanseError, match=r"event\.kind: .*chance"):
                refused()
        with pytest.raises(HanseError, match=r"event\.kind: .*chance"):
            noise_for(kind, 1.0, 0.0, 1)
        return
    assert noise_of_amount(kind, amount_of(kind, 2.0)) == pytest.approx(2.0)
    less, more = ReleaseEvent(kind, amount_of(kind, 1.0)), ReleaseEvent(kind, amount_of(kind, 2.0))
    assert (curve_of(more) < curve_of(less)).all(), "more noise is safer"


def test_an_unknown_kind_of_event_is_nobody_elses() -> None:
    event = ReleaseEvent("gaussian", 0.5)
    object.__setattr__(event, "kind", UNKNOWN)
    for refused in (lambda: event.epsilon, lambda: event.rho, lambda: amount_of(UNKNOWN, 2.0), lambda: curve_of(event)):
        with pytest.raises((AssertionError, HanseError), match="hearsay"):
            refused()


def test_an_unknown_accountant_is_refused_and_names_those_that_there_are() -> None:
    assert len({type(make_accountant(name)) for name in get_args(AccountantName)}) == len(get_args(AccountantName))
    with pytest.raises(HanseError, match=r"accountant: .*hearsay.*rdp, pld") as raised:
        make_accountant(UNKNOWN)
    assert raised.value.code is ErrorCode.INVALID_INPUT


def test_every_mode_of_noise_says_against_whom_it_holds_and_an_unknown_one_says_nothing() -> None:
    modes = names_of("noise")
    assert len(modes) == 4
    said = {mode: coalitions(private(noise=mode), 10) for mode in (*modes, None)}
    assert len(set(said.values())) == len(modes), "None is distributed-gamma"
    with pytest.raises(AssertionError, match="hearsay"):
        coalitions(private().model_copy(update={"noise": UNKNOWN}), 10)


def test_every_placement_says_who_may_learn_nothing_and_an_unknown_one_says_nothing() -> None:
    body: dict[str, Any] = {"rounds": 10, "model": {"name": "logistic"}, "participants": {"minimum": 4}}
    job = check_job(body | {"privacy": {"placement": "local", "mechanism": "gaussian", "epsilon": 2.0}})
    assert job.privacy is not None
    said = {
        placement: describe(
            job.model_copy(update={"privacy": job.privacy.model_copy(update={"placement": placement})}), active=5
        )
        for placement in names_of("placement")
    }
    assert len(set(said.values())) == 3
    unknown = job.privacy.model_copy(update={"placement": UNKNOWN})
    with pytest.raises(AssertionError, match="hearsay"):
        describe(job.model_copy(update={"privacy": unknown}), active=5)


def test_every_mechanism_says_what_it_hides_and_an_unknown_one_says_nothing() -> None:
    body: dict[str, Any] = {"rounds": 10, "model": {"name": "logistic"}, "participants": {"minimum": 4}}
    job = check_job(body | {"privacy": {"placement": "local", "mechanism": "gaussian", "epsilon": 2.0}})
    assert job.privacy is not None
    said = {
        mechanism: report(
            job, job.privacy.model_copy(update={"mechanism": mechanism, "min_separation": 2}), active=5, unit="patient"
        ).unit
        for mechanism in names_of("mechanism")
    }
    assert "patient" in said["dp_sgd"]
    assert "2 apart" in said["dp_ftrl"]
    assert len(set(said.values())) == 3, "all others hide what a site contributes to a round"
    with pytest.raises(AssertionError, match="hearsay"):
        report(job, job.privacy.model_copy(update={"mechanism": UNKNOWN}), active=5)


def test_every_mode_of_a_study_says_who_sees_sums_and_an_unknown_one_says_nothing() -> None:
    body: dict[str, Any] = {"workflow": STUDY, "study": {"test": "chi_square"}, "participants": {"minimum": 4}}
    job = check_job(body | {"secure_aggregation": {"mode": "compensator"}})
    assert job.secure_aggregation is not None
    modes = get_args(SecureAggregation.model_fields["mode"].annotation)
    said = {mode: describe(job.model_copy(update={"secure_aggregation": job.secure_aggregation.model_copy(
        update={"mode": mode})})) for mode in modes}  # fmt: skip
    assert len(set(said.values())) == len(modes) == 3
    unknown = job.secure_aggregation.model_copy(update={"mode": UNKNOWN})
    with pytest.raises(AssertionError, match="hearsay"):
        describe(job.model_copy(update={"secure_aggregation": unknown}))


def test_every_matrix_is_made_and_an_unknown_one_is_not_none() -> None:
    correlated = private(
        placement="central", mechanism="dp_ftrl", min_separation=2, matrix={"name": "banded", "bands": 2}
    )
    assert matrix_of(correlated, 4) is not None
    assert matrix_of(private(), 4) is None
    with pytest.raises(AssertionError, match="hearsay"):
        matrix_of(correlated.model_copy(update={"matrix": UNKNOWN}), 4)
