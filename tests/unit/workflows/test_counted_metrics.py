"""Metrics of counts: what a job may ask for, what is refused at submission and in which words, and what odd counts of
sites do to an evaluation."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from hanse.jobs import read_job
from hanse_fabric.errors import HanseError
from hanse_fabric.tensors.words import pack_words, unpack_words
from hanse_learning.pooled.layout import Counts, counts_in, counts_of_job, told_of
from hanse_privacy.report import describe, whole_epsilon
from hanse_schemas.job import EarlyStop, Job, check_job
from hanse_schemas.metrics import COUNTED
from hanse_schemas.prepare import completed_job
from hanse_schemas.protocols import asked_by_counts, asked_by_job
from hanse_schemas.schema import ArraySchema, Column, DataSchema, OpenSchema, TabularSchema
from hanse_schemas.subgroups import check_declared
from hanse_workflows.metrics import EarlyStopping, Verdict, summarize, with_counted
from hanse_workflows.outcomes import Answer
from hanse_workflows.submission import check_submitted

_COLUMNS = (Column(name="age"), Column(name="dose"))
_CLASSES = TabularSchema(features=_COLUMNS, target="died", classes=2)
_NUMBERS = TabularSchema(features=_COLUMNS, target="stay", task="regression")
_DAYS = TabularSchema(features=_COLUMNS, target="stay", task="regression", target_bounds=(0, 7, 365))


def submitted(schema: DataSchema = _CLASSES, **changes: Any) -> Job:
    model = "linear" if schema in (_NUMBERS, _DAYS) else "logistic"
    job = completed_job(check_job({"rounds": 1, "model": {"name": model}} | changes), schema)
    check_submitted(job, schema=schema)
    return job


def test_the_schema_says_of_how_many_classes_is_counted() -> None:
    assert submitted(evaluate={"metrics": ["auroc"]}).evaluate.classes == 2
    assert submitted(_NUMBERS, evaluate={"metrics": ["mae", "r2"]}).evaluate.classes == 0
    of_arrays = ArraySchema(shape=(4,))
    assert submitted(of_arrays, model={"name": "mlp", "outputs": 3}, evaluate={"metrics": ["f1"]}).evaluate.classes == 3


def test_concordance_is_counted_by_the_schemas_bounds_in_cells_that_fit() -> None:
    job = submitted(_DAYS, rounds=3, stop={"metric": "concordance", "patience": 1})
    assert (job.evaluate.metrics, job.evaluate.bounds) == (("concordance",), (0.0, 7.0, 365.0))
    counts = counts_of_job(job)
    assert counts is not None
    assert (counts.bins, counts.bounds, counts.ranks) == (8192, (0.0, 7.0, 365.0), True)
    noisy = {"mechanism": "dp_sgd", "placement": "local", "epsilon": 3, "metrics": {}}
    private = counts_of_job(submitted(_DAYS, evaluate={"metrics": ["concordance"]}, prepare="none", privacy=noisy))
    assert private is not None
    assert (private.bins, private.scale, private.ranks) == (16, 1.0, False)


def test_a_metric_to_stop_by_is_counted_without_another_word() -> None:
    job = submitted(rounds=3, stop={"metric": "brier", "patience": 1})
    assert job.stop is not None
    assert (job.evaluate.metrics, job.stop.mode) == (("brier",), "min")
    assert submitted(rounds=3, stop={"metric": "auroc", "patience": 1}).stop == EarlyStop(metric="auroc", patience=1)


def test_means_that_every_run_has_need_no_counts() -> None:
    assert counts_of_job(submitted(evaluate={"metrics": ["accuracy", "loss"]})) is None


@pytest.mark.parametrize(
    ("schema", "changes", "words"),
    [
        (_CLASSES, {"evaluate": {"metrics": ["aurok"]}}, "metrics: 'aurok' is none of Hanse's own: loss, .*auroc"),
        (_CLASSES, {"evaluate": {"metrics": ["Confusion"]}}, "'Confusion' is none of Hanse's own.*hanse run curves"),
        (_NUMBERS, {"evaluate": {"metrics": ["concordance"]}}, "concordance is counted by target_bounds.*has none"),
        (_NUMBERS, {"rounds": 3, "stop": {"metric": "concordance", "patience": 1}}, "by target_bounds of the project"),
        (_DAYS, {"evaluate": {"metrics": ["concordance"], "bounds": [0, 8, 365]}}, r"the project's schema: .0.0, 7.0"),
        (_DAYS, {"evaluate": {"metrics": ["concordance"], "bins": 31}}, "evaluate.bins: 31.*another power of two"),
        (_DAYS, {"evaluate": {"metrics": ["concordance"], "bins": 16384}}, "evaluate.bins: 16384.*at most 8192"),
        (_CLASSES, {"evaluate": {"metrics": ["concordance"]}}, "'concordance'.*a metric of classification: .*auroc"),
        (_DAYS, {"evaluate": {"metrics": ["c_index"]}}, "of regression it is called concordance; of two"),
        (_DAYS, {"evaluate": {"metrics": ["CCC"]}}, "here it is called concordance_correlation"),
        (
            _DAYS,
            {
                "evaluate": {"metrics": ["concordance", "mae"]}, "prepare": "none",
                "privacy": {"mechanism": "dp_sgd", "placement": "local", "epsilon": 3, "metrics": {}},
            },
            "evaluate.metrics: mae.*cannot be had with a section privacy: errors of a regression have no bound",
        ),
        (_CLASSES, {"evaluate": {"metrics": "auroc"}}, r"evaluate.metrics: a list is needed, .*\(given 'auroc'\)"),
        (_NUMBERS, {"evaluate": {"metrics": ["auroc"]}}, "evaluate.metrics: 'auroc'.*a metric of regression: .*mae"),
        (_CLASSES, {"evaluate": {"metrics": ["mae"]}}, "evaluate.metrics: 'mae'.*a metric of classification.*auroc"),
        (_NUMBERS, {"rounds": 3, "stop": {"metric": "auroc", "patience": 1}}, "a metric of regression"),
        (_CLASSES, {"evaluate": {"metrics": ["f1"], "every": 0}}, "metrics: they are never taken, for every is 0"),
        (_CLASSES, {"evaluate": {"metrics": ["f1"], "classes": 3}}, "evaluate.classes: 3.*the schema's 2"),
        (_CLASSES, {"evaluate": {"metrics": ["auroc"], "bins": 6000}}, "evaluate.bins: 6000.*at most 5888"),
        (OpenSchema(), {"evaluate": {"metrics": ["f1"]}}, "evaluate.classes: None.*the number of classes"),
        (
            _CLASSES, {"evaluate": {"metrics": ["f1"]}, "code": {"name": "own", "digest": "0" * 64}},
            "evaluate.metrics: f1 cannot be had with site code",
        ),
        (
            _CLASSES,
            {
                "evaluate": {"metrics": ["f1"]}, "prepare": "none",
                "privacy": {"mechanism": "dp_sgd", "placement": "local", "noise_multiplier": 1.0},
            },
            "evaluate.metrics: f1 would be told without noise, for privacy.metrics is not there",
        ),
    ],
)  # fmt: skip
def test_what_the_run_will_not_have_is_refused_with_field_value_and_what_was_expected(
    schema: DataSchema, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(HanseError, match=words):
        submitted(schema, **changes)


_WARDS = TabularSchema(
    features=(
        Column(name="age", minimum=0, maximum=120), Column(name="weight", bands=(50, 90)),
        Column(name="ward", kind="category", values=("a", "b")),
        Column(name="street", kind="category", values=tuple(f"s{at}" for at in range(40))),
        Column(name="smoker", kind="boolean"),
    ),
    target="died", classes=2,
)  # fmt: skip


def by(column: str, **more: Any) -> dict[str, Any]:
    return {"evaluate": {"metrics": ["auroc"], "subgroups": {"column": column}} | more}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (by("sex"), "evaluate.subgroups.column: 'sex'.*number with bands, of the schema: weight, ward, street, smoker"),
        (by("age"), "evaluate.subgroups: 'age, a number of bands ..'.*of the project's schema: -.*bands: .40, 60"),
        (by("street"), "street, a category of 40 named values.*31 at most"),
        (by("ward", metrics=["accuracy"]), "subgroups: metrics of counts are to be named, such as auroc"),
        (by("ward", optional=True), "subgroups: they are insisted on"),
        (by("ward", bins=5000), "evaluate.bins: 5000.*at most .* in 3 groups"),
        (by("ward") | {"participants": {"fraction": 0.5}}, "evaluate.subgroups: 'fraction 0.5.*single sites' groups"),
        (by("ward") | {"participants": {"quorum": 0.5}}, "evaluate.subgroups: 'fraction 1 and quorum 0.5"),
        ({"evaluate": {"metrics": ["f1"], "subgroups": {"column": "ward", "smallest": 1}}}, "smallest: .* 5"),
    ],
)
def test_groups_that_cannot_be_told_of_are_refused_at_submission(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(HanseError, match=words):
        submitted(_WARDS, **changes)


def test_groups_are_those_of_the_schema_and_a_site_refuses_others() -> None:
    job = submitted(_WARDS, **by("ward"))
    asked = job.evaluate.subgroups
    assert asked is not None
    assert asked.labels == ("a", "b", "missing or other")
    assert asked_by_job(job)["subgroup_counts"] == 3
    counts = counts_of_job(job)
    assert counts is not None
    assert counts_in({"evaluate": {"counts": told_of(counts)}}) == counts
    assert counts.words <= 12000
    check_declared(asked, _WARDS)
    for other in (("a",), ("a", "b", "c"), ("b", "a")):
        with pytest.raises(HanseError, match=r"evaluate\.subgroups: they are not of a column"):
            check_declared(asked.model_copy(update={"values": other}), _WARDS)


def test_bands_are_those_of_the_schema_and_neither_a_job_nor_a_hub_moves_one_by_a_person() -> None:
    job = submitted(_WARDS, **by("weight"))
    asked = job.evaluate.subgroups
    assert asked is not None
    assert asked.labels == ("below 50", "50 to below 90", "90 or more", "missing or other")
    assert asked_by_job(job)["subgroup_counts"] == 4
    counts = counts_of_job(job)
    assert counts is not None
    assert counts_in({"evaluate": {"counts": told_of(counts)}}) == counts
    chosen = {"column": "weight", "kind": "number", "bands": [50, 61.5, 90]}
    with pytest.raises(HanseError, match=r"weight, a number of bands .50.0, 61.5, 90.0..*schema: .50.0, 90.0."):
        submitted(_WARDS, evaluate={"metrics": ["auroc"], "subgroups": chosen})
    check_declared(asked, _WARDS)
    for other in ((50,), (50, 90.5), (50, 61.5, 90), ()):
        with pytest.raises(HanseError, match=r"evaluate\.subgroups: they are not of a column"):
            check_declared(asked.model_copy(update={"bands": other}), _WARDS)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ({"kind": "category", "bands": [1]}, "bands belong to a number, it is a category"),
        ({"bands": [2, 1]}, "bounds that ascend"),
        ({"bands": [1, 1]}, "bounds that ascend"),
        ({"bands": [float("inf")]}, "finite"),
        ({"bands": list(range(31))}, "at most 30"),
    ],
)
def test_bands_that_are_none_are_refused_in_the_schema(column: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Column(name="age", **column)


def test_fine_histograms_are_asked_for_by_name_and_coarse_ones_are_not() -> None:
    assert asked_by_job(submitted(evaluate={"metrics": ["auroc"]}))["score_histograms"] == 5888
    for bins in (2, 4, 8, 16, 32):
        assert "score_histograms" not in asked_by_job(submitted(evaluate={"metrics": ["auroc"], "bins": bins}))
    for bins in (3, 31, 33, 64):  # beside those of 32 they would tell where in a bin somebody is
        assert asked_by_job(submitted(evaluate={"metrics": ["auroc"], "bins": bins}))["score_histograms"] == bins
    assert set(asked_by_job(submitted(evaluate={"metrics": ["f1"]}))) == {"moments"}


@pytest.mark.parametrize(("classes", "bins", "fine"), [(2, 32, False), (3, 8, False), (3, 16, True), (4, 8, False),
                                                       (16, 2, False), (17, 2, True), (64, 32, True)])  # fmt: skip
def test_histograms_are_coarse_where_all_classes_together_have_few_bins(classes: int, bins: int, fine: bool) -> None:
    asked = {"score_histograms": bins * classes} if fine else {}
    assert asked_by_counts(["auroc"], bins, classes) == asked


def test_calibration_and_the_confusion_of_very_many_classes_are_asked_for_by_name() -> None:
    for metric in ("ece", "brier"):
        assert asked_by_job(submitted(evaluate={"metrics": [metric]}))["calibration"] == 46
    assert asked_by_counts(["f1"], None, 32) == {}
    assert asked_by_counts(["f1"], None, 33) == {"confusion": 33}
    assert asked_by_counts(["mae", "accuracy", "loss"], None, 0) == {}


def test_a_task_says_what_is_counted_and_what_it_cannot_ask_for_is_refused_at_the_site() -> None:
    counts = counts_of_job(submitted(evaluate={"metrics": ["auroc", "f1"]}))
    assert counts is not None
    assert counts_in({"evaluate": {"every": 1, "counts": told_of(counts)}}) == counts
    assert counts_in({"evaluate": {"every": 1}}) is None
    for wrong in ({"bins": 10**6}, {"classes": 0}, {"names": ["mae"]}, {"names": ["people"]}, {"more": 1}):
        with pytest.raises(HanseError):
            counts_in({"evaluate": {"counts": told_of(counts) | wrong}})
    with pytest.raises(HanseError, match="at most 12000 words"):
        counts_in({"evaluate": {"counts": told_of(counts) | {"classes": 64, "bins": 5000}}})


def test_words_that_are_none_or_inflate_to_more_are_refused() -> None:
    words = np.arange(100, dtype=np.uint64)
    assert (unpack_words(pack_words(words), 100, field="counted") == words).all()
    bomb = base64.b64encode(zlib.compress(bytes(50 << 20))).decode()
    for text in (bomb, "?", base64.b64encode(b"none").decode(), pack_words(words[:-1]), pack_words(words)[:-8]):
        with pytest.raises(HanseError, match=r"counted.*100 words of 64 bits"):
            unpack_words(text, 100, field="counted")


def test_a_site_whose_counts_cannot_be_read_counts_for_nothing() -> None:
    counts = Counts(("matthews", "f1"), "classification", 2)
    words = np.array([1, 4, 2, 0, 1, 1], np.uint64)  # of four examples, a confusion matrix
    good = Answer(participant="north", examples=4, metrics={"loss": 0.1, "matthews": 0.0}, counted=pack_words(words))
    bad = Answer(participant="south", examples=4, metrics={"loss": 0.3, "matthews": 0.0}, counted="?")
    old = Answer(participant="west", examples=4, metrics={"loss": 0.2, "matthews": 0.0})
    answers = (good, bad, old)
    found = with_counted(summarize(answers), counts, answers)
    assert found.curves["sites"] == 1
    assert found.overall["f1"] == pytest.approx(2 / 3)
    assert found.overall["loss"] == pytest.approx(0.2)
    assert found.overall["matthews"] == pytest.approx(2 / 12**0.5)  # not the mean of the sites'
    assert found.sites["north"]["f1"] == pytest.approx(2 / 3)
    nobody = with_counted(summarize((old,)), counts, (old,))
    assert nobody.undefined.keys() == {"matthews", "f1"}
    assert "matthews" not in nobody.overall


def test_an_evaluation_that_cannot_tell_the_metric_is_no_gain_and_no_failure() -> None:
    watch = EarlyStopping(EarlyStop(metric="auroc", patience=2))
    reason = {"auroc": "none of 3 examples is of class 1"}
    assert watch.observe({"loss": 1.0}, reason) == Verdict()
    assert watch.observe({"loss": 1.0, "auroc": 0.7}) == Verdict(best=True)
    assert watch.observe({"loss": 1.0}, reason) == Verdict()
    assert watch.observe({"loss": 1.0}, reason) == Verdict("auroc has not improved on 0.7 for 2 evaluations")
    never = EarlyStopping(EarlyStop(metric="auroc", patience=1))
    assert never.observe({}, reason).stop == "auroc could not be told for 1 evaluations"


def test_every_metric_of_counts_says_which_value_is_better() -> None:
    assert {metric.better for metric in COUNTED.values()} == {"max", "min"}
    assert EarlyStop.model_validate({"metric": "ece", "target": 0.1}).mode == "min"


DP_SGD = {"placement": "local", "mechanism": "dp_sgd", "noise_multiplier": 1.0}


def private(metrics: dict[str, Any] | None = None, schema: DataSchema = _CLASSES, **changes: Any) -> Job:
    given = changes.pop("privacy", {})
    section = DP_SGD | ({} if metrics is None else {"metrics": metrics}) | given
    return submitted(schema, **({"rounds": 4, "prepare": "none", "privacy": section} | changes))


def test_a_private_job_is_counted_with_noise_for_what_it_may_spend_after_its_last_round() -> None:
    job = private({"epsilon": 0.5}, evaluate={"metrics": ["auroc", "brier"]})
    counts = counts_of_job(job)
    assert counts is not None
    assert (counts.scale, counts.bins, counts.cells, job.evaluate.every) == (2.0, 16, 1, 4)
    assert counts_in({"evaluate": {"counts": told_of(counts)}}) == counts
    assert asked_by_job(job) == {}
    assert whole_epsilon(job.model_copy(update={"privacy": job.privacy.model_copy(update={
        "epsilon": 3.0, "noise_multiplier": None,
    })})) is None  # fmt: skip
    assert "costs epsilon 0.5 for each evaluation of a site, 0.5 for 1 of them" in describe(job)
    each = private({"epsilon": 0.5}, evaluate={"metrics": ["auroc"], "every": 1})
    assert "0.5 for each evaluation of a site, 2 for 4 of them" in describe(each)
    stopped = private({}, evaluate={"metrics": ["auroc"]}, stop={"metric": "auroc", "patience": 2})
    assert stopped.evaluate.every == 1


def test_an_owner_who_says_every_round_is_not_taken_for_one_who_says_nothing() -> None:
    body = {"rounds": 4, "model": {"name": "logistic"}, "privacy": DP_SGD | {"metrics": {}}}
    assert read_job(body)["evaluate"]["every"] == 4
    assert check_job(read_job(body | {"evaluate": {"every": 1}})).evaluate.every == 1
    assert check_job(read_job({"rounds": 4, "model": {"name": "logistic"}})).evaluate.every == 1


def test_a_private_job_that_may_spend_and_says_nothing_is_given_metrics_of_one_count_each() -> None:
    job = private({}, name="x")
    assert job.evaluate.named == ("auroc", "average_precision", "sensitivity", "specificity", "f1", "brier")
    assert job.evaluate.optional
    of_more = _CLASSES.model_copy(update={"classes": 4})
    assert private({}, of_more).evaluate.named == ("balanced_accuracy", "f1")
    assert private({"bounds": {"loss": 4.0}}).evaluate.named == ()


@pytest.mark.parametrize(
    ("metrics", "changes", "words"),
    [
        (None, {"evaluate": {"metrics": ["f1"]}}, "evaluate.metrics: f1 would be .*privacy.metrics.*epsilon: 1.0"),
        ({}, {"evaluate": {"metrics": []}}, "privacy.metrics.bounds: 'none'.*or evaluate.metrics of counts"),
        ({}, {"evaluate": {"metrics": ["auroc"], "bins": 64}}, "evaluate.bins: 64.*2, 4, 8, 16 or 32"),
        ({}, {"evaluate": {"metrics": ["auroc"], "bins": 12}}, "evaluate.bins: 12.*2, 4, 8, 16 or 32"),
        (
            {}, {"evaluate": {"metrics": ["auroc"]}, "privacy": {"mechanism": "gaussian"}},
            "evaluate.metrics: auroc.*cannot be had with gaussian, local: .*nothing would be left",
        ),
        ({}, {"schema": _NUMBERS, "evaluate": {"metrics": ["mae"]}}, "evaluate.metrics: mae.*have no bound"),
        (
            {}, {"schema": _CLASSES.model_copy(update={"classes": 3}), "evaluate": {"metrics": ["brier"]}},
            "evaluate.metrics: brier of more than two classes cannot be had",
        ),
        (
            {"bounds": {"loss": 4.0}}, {"evaluate": {"metrics": ["f1"]}, "stop": {"metric": "accuracy", "patience": 1}},
            "stop.metric: accuracy",
        ),
    ],
)  # fmt: skip
def test_what_noise_does_not_hide_or_leaves_nothing_of_is_refused_at_submission(
    metrics: dict[str, Any] | None, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(HanseError, match=words):
        private(metrics, **changes)
