"""A job file that cannot run is refused with the field, the value and what was expected."""

from datetime import date

import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.text_files import parse_yaml
from hanse_schemas.job import check_job

GOOD = {"rounds": 3, "model": {"name": "linear"}}


def noisy(**changes: object) -> dict[str, object]:
    return {"privacy": {"placement": "local", "mechanism": "gaussian", "epsilon": 2.0, **changes}}


def several(*names: str, needed: int | None, mode: str = "compensator") -> dict[str, object]:
    """A job of several compensators, three if none is named."""
    return {"secure_aggregation": {"mode": mode, "compensators": names or ("one", "two", "three"), "needed": needed}}


def test_the_defaults_make_a_whole_job() -> None:
    job = check_job(parse_yaml("rounds: 3\nmodel: {name: linear}\n", "job file"))
    assert job.participants.needed(4) == 4
    assert job.strategy == {}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"epochs": 3}, "epochs: Extra inputs are not permitted (given 3)"),
        ({"rounds": 0}, "rounds: Input should be greater than or equal to 1 (given 0)"),
        ({"participants": {"quorum": 1.5}}, "participants.quorum: Input should be less than or equal to 1 (given 1.5)"),
        ({"participants": {"minimum": 0}}, "participants.minimum"),
        ({"participants": {"fraction": 0}}, "participants.fraction"),
        ({"participants": {"grace": 60, "deadline": 30}}, "grace of 60 s is longer than the deadline of 30 s"),
        ({"stop": {"metric": "accuracy"}}, "give patience, target, or both"),
        ({"stop": {"metric": "auprc", "patience": 2}}, "max or min is needed for 'auprc'"),
        ({"keep": "best"}, "keep: best is given without a section stop"),
        ({"keep": "newest"}, "'last' or 'best'"),
        ({"stop": {"metric": "loss", "patience": 2}, "evaluate": {"every": 0}}, "stop.metric 'loss' is never measured"),
        ({"stop": {"target": 0.9}, "evaluate": {"every": 9}}, "never decided before the last round"),
        ({"model": {}}, "model: a mapping with a name is needed"),
        ({"code": {"name": "../x", "digest": "0" * 64}}, "code.name"),
        ({"seed": -1}, "seed"),
        (noisy(epsilon=0), "privacy.epsilon: Input should be greater than 0 (given 0)"),
        (noisy(delta=1), "privacy.delta: Input should be less than 1 (given 1)"),
        (noisy(epsilon=None), "give epsilon or noise_multiplier, one of them"),
        (several(needed=4), "needed: 4 of 3 compensators; at most all of them are needed"),
        (several("one", "two", "three", "four", needed=2), "needed: 2 of 4 compensators; more than half are"),
        (several(needed=1), "secure_aggregation.needed: Input should be greater than or equal to 2 (given 1)"),
        (several("one", "two", "one", needed=2), "compensators: one, two, one; each is named once"),
        (several("one", needed=2), "secure_aggregation.compensators"),
        (several(*"abcdefgh", needed=5), "secure_aggregation.compensators"),
        (several("One", "two", needed=2), "secure_aggregation.compensators"),
        (several(needed=None), "needed: none given; compensators and needed belong together"),
        ({"secure_aggregation": {"mode": "compensator", "needed": 2}}, "compensators: none given"),
        (several(needed=2, mode="pairwise"), "compensators and needed belong to mode compensator, mode is pairwise"),
        ({"participants": {"deadline": float("nan")}}, "participants.deadline"),
    ],
)
def test_a_job_that_cannot_run_is_refused_by_name(change: dict[str, object], told: str) -> None:
    with pytest.raises(HanseError) as refusal:
        check_job({**GOOD, **change})
    assert refusal.value.code is ErrorCode.INVALID_INPUT
    assert told in refusal.value.message


@pytest.mark.parametrize(
    ("metric", "mode"),
    [("loss", "min"), ("mse", "min"), ("loss_min", "min"), ("accuracy", "max"), ("r2", "max"), ("accuracy_min", "max")],
)
def test_a_stop_follows_its_metric(metric: str, mode: str) -> None:
    job = check_job({**GOOD, "stop": {"metric": metric, "patience": 2}})
    assert job.stop is not None
    assert job.stop.mode == mode
    assert check_job(job.model_dump(mode="json")) == job


def test_what_a_job_says_of_its_metric_counts() -> None:
    for metric, mode in (("loss", "max"), ("auprc", "max"), ("distance", "min")):
        stop = check_job({**GOOD, "stop": {"metric": metric, "mode": mode, "patience": 2}}).stop
        assert stop is not None
        assert stop.mode == mode


def test_a_stop_may_only_say_which_model_is_the_best() -> None:
    job = check_job({**GOOD, "stop": {"metric": "loss"}, "keep": "best"})
    assert job.stop is not None
    assert not job.stop.ends_runs


@pytest.mark.parametrize("text", ["- a list", "", "rounds: [", "!!python/object/apply:os.system ['true']"])
def test_a_file_that_is_no_job_file_is_refused(text: str) -> None:
    with pytest.raises(HanseError, match="job file"):
        check_job(parse_yaml(text, "job file"))


def test_no_fewer_than_the_minimum_are_sampled() -> None:
    job = check_job({**GOOD, "participants": {"minimum": 5, "fraction": 0.1}})
    assert job.participants.sampled(100) == 10
    assert job.participants.sampled(5) == 5


@pytest.mark.parametrize(
    "section", ["codec", "evaluate", "model", "participants", "prepare", "privacy", "stop", "strategy", "train"]
)
@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (["adam"], "a list"), ("adam", "a text"), (3, "a number"), (True, "true or false"),
        (date(2026, 1, 1), "a date"), (b"adam", "another kind of value"),
    ],
)  # fmt: skip
def test_what_stands_in_a_section_s_place_is_told_with_its_kind_and_what_is_needed(
    section: str, given: object, kind: str
) -> None:
    with pytest.raises(HanseError) as raised:
        check_job({"rounds": 1, "model": {"name": "linear"}, section: given})
    told = f"job file: {section}: a section is needed, as {{key: value}}, not {kind}"
    other = ", or Input should be 'none'" if section == "prepare" else ""
    assert raised.value.message == f"{told}{other} (given {given!r})"


def test_a_list_without_brackets_is_told_as_such() -> None:
    with pytest.raises(HanseError, match=r"codec\.up: a list is needed"):
        check_job({"rounds": 1, "model": {"name": "linear"}, "codec": {"up": "topk"}})
