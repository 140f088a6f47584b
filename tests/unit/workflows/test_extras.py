"""What is reduced beside a model, and what a strategy is told of the round."""

from __future__ import annotations

from hanse_schemas.job import check_job
from hanse_workflows.round_state import RoundState, former_name, reduce_options


def test_the_former_mean_is_called_as_no_participant() -> None:
    assert former_name("control", ["north"]) == "former-control"
    assert former_name("control", ["former-control"]) == "former-controlx"


def test_a_share_that_the_job_says_is_feddyns_whoever_takes_part() -> None:
    strategy = {"optimizer": {"name": "feddyn", "alpha": 0.1, "share": 0.25}}
    job = check_job({"rounds": 1, "model": {"name": "linear"}, "strategy": strategy, "participants": {"minimum": 2}})
    told = reduce_options(job, RoundState().seeing("abc"), None).strategy
    assert told is not None
    assert told(3) == strategy
