"""How finely, and how often, a site may be asked."""

from datetime import timedelta

import numpy as np
import pytest
from pydantic import ValidationError

from hanse_datapod.agent.admission import question_of
from hanse_datapod.home.runs import Runs
from hanse_datapod.policy.limits import DAY_S, FEW, AskingPolicy
from hanse_datapod.policy.questions import Questions
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.worker.port import DataState, WorkOutcome
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import TaskKind
from hanse_fabric.messages.privacy import Privacy, PrivacyTerms
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_learning.preparation.histograms import histograms
from hanse_learning.preparation.order import PASSES, PrefixQuestion, number_of
from hanse_schemas.prepare import NumberRule
from hanse_schemas.protocols import PROTOCOLS
from hanse_schemas.schema import Column, GenotypesSchema, OpenSchema, TabularSchema
from hanse_schemas.study import Study
from unit.datapod.site_actors import task

DECLARED = GenotypesSchema(phenotypes=("HEIGHT",), covariates=("AGE",))


def refused(check, *arguments, **named):
    with pytest.raises(HanseError) as caught:
        check(*arguments, **named)
    assert caught.value.code is ErrorCode.POLICY
    return caught.value.message


def study(phenotype=None, covariates=()):
    return Study(test="linear", phenotype=phenotype, covariates=covariates)


def test_where_masking_is_required_studies_ask_of_what_the_project_declares():
    asking = AskingPolicy()
    asking.check_study(study("WEIGHT", ("BMI",)), DECLARED, cautious=False)
    asking.check_study(study("HEIGHT", ("AGE",)), DECLARED, cautious=True)
    asking.check_study(study(), DECLARED, cautious=True)
    assert "WEIGHT" in refused(asking.check_study, study("WEIGHT"), DECLARED, cautious=True)
    assert "BMI" in refused(asking.check_study, study("HEIGHT", ("AGE", "BMI")), DECLARED, cautious=True)


def test_a_site_names_the_columns_that_it_may_be_asked_of():
    asking = AskingPolicy(phenotypes=("WEIGHT",), covariates=(), columns=("age", "outcome"))
    asking.check_study(study("WEIGHT"), DECLARED, cautious=True)
    refused(asking.check_study, study("HEIGHT"), DECLARED, cautious=False)
    refused(asking.check_study, study("WEIGHT", ("AGE",)), DECLARED, cautious=False)
    table = TabularSchema.model_validate({"features": [{"name": "age"}, {"name": "postcode"}], "target": "outcome"})
    assert "asking.columns: postcode" in refused(asking.check_schema, table)
    weighted = TabularSchema.model_validate({"features": [{"name": "age"}], "target": "outcome", "weight": "income"})
    assert "asking.columns: income" in refused(asking.check_schema, weighted)
    asking.check_schema(OpenSchema())


def counting(metrics, bins, classes=2, **more):
    counts = {"names": metrics, "task": "classification", "classes": classes, "bins": bins, **more}
    return task(kind=TaskKind.EVALUATE, config={"evaluate": {"every": 1, "counts": counts}})


def test_a_site_counts_scores_as_finely_as_its_policy_opens_and_without_noise_only_where_none_is_required():
    table = TabularSchema.model_validate({"features": [{"name": "age"}], "target": "died"})
    masked = Policy.model_validate({"masking": {"required": True}})
    opened = Policy.model_validate({"masking": {"required": True}, "asking": {"protocols": ["score_histograms"]}})
    assert "score_histograms" in refused(masked.check_asking, counting(["auroc"], 5888), table)
    assert "score_histograms" in refused(masked.check_asking, counting(["auroc"], 31), table)
    masked.check_asking(counting(["auroc", "f1"], 32), table)
    assert "asking.protocols: calibration" in refused(masked.check_asking, counting(["brier"], 32), table)
    many = counting(["auroc"], 32, classes=64)
    assert "asking.protocols: score_histograms" in refused(masked.check_asking, many, table)
    still = Policy.model_validate({"outputs": {"updates": False}})  # where nothing but metrics may leave
    assert "score_histograms" in refused(still.check_asking, counting(["auroc"], 5888), table)
    for policy in (opened, Policy()):
        policy.check_asking(counting(["auroc"], 5888), table)
    private = Policy.model_validate({"privacy": {"required": True, "uncovered": ["evaluation"]}})
    assert "privacy.required: counts" in refused(private.privacy.check, counting(["f1"], 32))
    private.privacy.check(task(kind=TaskKind.EVALUATE))


def test_a_site_counts_values_by_what_is_said_of_them_where_its_policy_opens_it_and_by_its_schemas_bounds_alone():
    of_days = {"features": [{"name": "age"}], "target": "days", "task": "regression", "target_bounds": [0, 7, 365]}
    table = TabularSchema.model_validate(of_days)
    masked = Policy.model_validate({"masking": {"required": True}})
    opened = Policy.model_validate({"masking": {"required": True}, "asking": {"protocols": ["concordance"]}})

    def counting_days(bins, bounds=(0, 7, 365)):
        counts = {"names": ["concordance"], "task": "regression", "classes": 0, "bins": bins, "bounds": list(bounds)}
        return task(kind=TaskKind.EVALUATE, config={"evaluate": {"counts": counts}})

    for bins in (64, 8192):
        assert "asking.protocols: concordance" in refused(masked.check_asking, counting_days(bins), table)
        for policy in (opened, Policy()):
            policy.check_asking(counting_days(bins), table)
    masked.check_asking(counting_days(32), table)
    for bounds in ((0, 7.5, 365), (0, 7), (0, 6, 7, 365)):
        for policy in (opened, masked, Policy()):
            with pytest.raises(HanseError, match="they are not the target_bounds"):
                policy.check_asking(counting_days(32, bounds), table)
    with pytest.raises(HanseError, match="they are not the target_bounds"):
        Policy().check_asking(counting_days(32), table.model_copy(update={"target_bounds": ()}))


def test_only_what_reads_the_sites_data_is_held_to_its_columns():
    policy = Policy(asking=AskingPolicy(columns=("age",), phenotypes=("HEIGHT",)))
    table = TabularSchema.model_validate({"features": [{"name": "age"}, {"name": "postcode"}], "target": "age"})
    for kind in (TaskKind.TRAIN, TaskKind.EVALUATE):
        assert "postcode" in refused(policy.check_asking, task(kind=kind), table)
    policy.check_asking(task(kind=TaskKind.INITIALIZE), table)
    for phenotype in ("HEIGHT", "WEIGHT"):
        asked = task(
            kind=TaskKind.STUDY, config={"study": {"test": "linear", "phenotype": phenotype}, "step": "samples"}
        )
        if phenotype == "HEIGHT":
            policy.check_asking(asked, DECLARED)
        else:
            assert "WEIGHT" in refused(policy.check_asking, asked, DECLARED)


def test_a_study_with_few_cases_or_controls_is_refused_without_their_number():
    said = refused(AskingPolicy().check_group, DataState(group=7), "a study", cautious=True)
    assert "7" not in said
    AskingPolicy().check_group(DataState(group=7), "a study", cautious=False)
    AskingPolicy(group=5).check_group(DataState(group=7), "a study", cautious=True)
    AskingPolicy().check_group(DataState(), "a study", cautious=True)


def test_so_many_runs_a_day_ask_a_site(tmp_path):
    runs = Runs(tmp_path)
    for name in ("a", "b", "a"):
        runs.begin(name, 1000.0, 2)
    refused(runs.begin, "c", 1001.0, 2)
    runs.begin("a", 1002.0, 2)
    runs.begin("c", 1001.0 + DAY_S, 2)


def test_what_is_asked_is_counted_whenever_it_is_sent_and_under_whatever_name():
    first = task(kind=TaskKind.EVALUATE)
    sent_again = first.model_copy(update={"issued_at": first.deadline, "deadline": first.deadline + timedelta(hours=1)})
    assert question_of(first) == question_of(sent_again)
    others = [
        {"config": {"model": {"name": "mlp"}, "evaluate": {"bins": 8}}}, {"seed": first.seed + 1}, {"trained": 3},
        {"round": first.round + 1}, {"model": ref_of_bytes(b"another")}, {"run": "f" * 12}, {"id": "f" * 32},
    ]  # fmt: skip
    asked = {question_of(first.model_copy(update=other)) for other in others}
    assert len(asked | {question_of(first)}) == len(others) + 1


def test_rules_that_are_not_named_are_cautious_where_masking_is_required():
    asking = Policy().asking
    assert asking.most_runs(cautious=False) is None
    assert asking.most_runs(cautious=True) == 100
    assert (asking.few(cautious=True), asking.few(cautious=False), AskingPolicy(differ=3).few(cautious=True)) == (
        FEW,
        0,
        3,
    )


WARDS = TabularSchema.model_validate(
    {"features": [{"name": "ward", "kind": "category", "values": ["burns", "general"]}], "target": "died"}
)


def preparation(**rule):
    told = {"name": "ward", "kind": "category", "values": ["burns", "general"]} | rule
    return task(kind=TaskKind.PREPARE, config={"prepare": [told]})


@pytest.mark.parametrize("policy", [{"masking": {"required": True}}, {"privacy": {"required": True}},
                                    {"asking": {"protocols": ["moments"]}}])  # fmt: skip
def test_counts_of_categories_are_opened_by_policy_and_a_job_without_them_is_answered(policy):
    said = refused(Policy.model_validate(policy).check_asking, preparation(rare=2), WARDS)
    assert "asking.protocols: category_counts" in said
    assert "allowed: moments" in said
    Policy.model_validate(policy).check_asking(preparation(), WARDS)
    opened = policy | {"asking": {"protocols": ["moments", "category_counts"]}}
    Policy.model_validate(opened).check_asking(preparation(rare=2), WARDS)
    Policy().check_asking(preparation(rare=2), WARDS)


@pytest.mark.parametrize(
    ("asking", "cautious", "limits"),
    [
        ({}, False, (None, None, None)),
        ({}, True, (100, 100, 1000)),
        ({"runs": 3}, False, (3, 3, None)),
        ({"runs": 3, "questions": 7, "evaluations": 9}, True, (3, 7, 9)),
    ],
)
def test_questions_follow_runs_where_the_policy_does_not_say_how_many(asking, cautious, limits):
    rules = AskingPolicy.model_validate(asking)
    asked = rules.most_runs, rules.most_questions, rules.most_evaluations
    assert tuple(most(cautious=cautious) for most in asked) == limits


def test_the_refusal_says_what_a_job_may_ask_instead():
    with pytest.raises(HanseError) as caught:
        AskingPolicy(protocols=()).check_protocols({"moments": 3}, cautious=False)
    assert caught.value.hint == PROTOCOLS["moments"].instead


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_protocol_tells_no_more_numbers_than_its_bound_wherever_it_is_open(name):
    asking, most = AskingPolicy(protocols=(name,)), PROTOCOLS[name].most
    asking.check_protocols({name: most}, cautious=True)
    assert f"at most {most}" in refused(asking.check_protocols, {name: most + 1}, cautious=False)


def test_a_protocol_that_there_is_not_is_an_error_in_a_policy_and_in_a_task():
    with pytest.raises(ValidationError, match="there is no protocol of this name; there are moments"):
        AskingPolicy(protocols=("moment",))
    with pytest.raises(HanseError) as caught:
        AskingPolicy().check_protocols({"medians": 1}, cautious=False)
    assert caught.value.code is ErrorCode.INVALID_INPUT


AGES = TabularSchema.model_validate({"features": [{"name": "age"}], "target": "died"})


def ages(question=None, **rule):
    asked = {} if question is None else {"quantiles": question}
    return task(kind=TaskKind.PREPARE, config={"prepare": [{"name": "age", "kind": "number", **rule}], **asked})


@pytest.mark.parametrize("rule", [{"scale": "robust"}, {"missing": "median"}])
def test_quartiles_are_opened_by_policy_and_a_job_without_them_is_answered(rule):
    policy = {"masking": {"required": True}}
    said = refused(Policy.model_validate(policy).check_asking, ages(**rule), AGES)
    assert "asking.protocols: quantiles" in said
    Policy.model_validate(policy).check_asking(ages(), AGES)
    opened = policy | {"asking": {"protocols": ["moments", "quantiles"]}}
    Policy.model_validate(opened).check_asking(ages(**rule), AGES)


def cells_read(check, cells):
    """What a hub reads of all sites' cells that asks for every prefix that there is, as long as sites answer."""
    open_, read = [(0, 0)], []
    while open_:
        depth, prefix = open_.pop()
        question = {"depth": depth, "bits": 8, "prefixes": {"age": [prefix]}}
        if refusal(check, ages(question, scale="robust")):
            break
        (counts,) = histograms(PrefixQuestion.model_validate(question), {"age": cells})
        for digit in np.flatnonzero(counts).tolist():
            key = prefix << 8 | digit
            if depth < 56:
                open_.append((depth + 8, key))
            else:
                read += [number_of(key)] * int(counts[digit])
    return sorted(read)


@pytest.mark.parametrize("bounded", [True, False])
def test_a_hub_does_not_read_all_cells_by_questions_for_quartiles(bounded):
    cells = np.array([21.5, 40.0, 33.25, 87.0, 64.5, 12.0, 55.0])
    read = cells_read(Questions().check if bounded else lambda _task: None, cells)
    assert len(read) < 4 if bounded else read == sorted(cells)


def refusal(check, asked):
    try:
        check(asked)
    except HanseError as error:
        return str(error)
    return ""


def test_a_run_asks_no_more_questions_than_one_search_needs():
    """Else a hub reads the whole distribution, where a search tells it three quartiles."""
    questions = Questions()
    asked = [{"depth": 60, "bits": 4, "prefixes": {"age": [prefix]}} for prefix in range(PASSES + 1)]
    for question in asked[:PASSES] * 2:
        questions.check(ages(question, scale="robust"))
    questions.check(ages(scale="robust"))
    said = refused(questions.check, ages(asked[PASSES], scale="robust"))
    assert "quantiles in more than 16 steps" in said
    questions.check(ages(asked[PASSES], scale="robust").model_copy(update={"run": "r" * 12}))


BY_WARD = TabularSchema.model_validate(
    {"features": [{"name": "ward", "kind": "category", "values": ["burns", "stroke"]}], "target": "died"}
)


def by_ward(**counts):
    wards = {"column": "ward", "kind": "category", "values": ["burns", "stroke"], "smallest": 10}
    named = {"names": ["f1"], "task": "classification", "classes": 2, "bins": 32, "subgroups": wards}
    return task(kind=TaskKind.EVALUATE, config={"evaluate": {"every": 1, "counts": named | counts}})


def test_counts_by_groups_are_told_where_each_has_examples_enough():
    policy = Policy.model_validate({"asking": {"group": 30}})
    few, enough = DataState(group=29), DataState(group=30)
    assert "asking.group" in refused(policy.check_subgroups, by_ward(), few)
    assert "asking.group" in refused(
        policy.check_subgroups, by_ward(scale=0.5), few
    )  # noise without terms is trusted not
    policy.check_subgroups(by_ward(), enough)
    policy.check_subgroups(counting(["f1"], 32), few)
    policy.check_subgroups(task(kind=TaskKind.EVALUATE), few)  # which counts nothing


def test_a_cautious_site_counts_by_groups_where_its_policy_opens_that_though_what_it_counts_is_coarse():
    masked = {"masking": {"required": True}}
    said = refused(Policy.model_validate(masked).check_asking, by_ward(), BY_WARD)
    assert "asking.protocols: subgroup_counts" in said
    opened = Policy.model_validate(masked | {"asking": {"protocols": ["subgroup_counts"]}})
    for policy in (opened, Policy()):
        policy.check_asking(by_ward(), BY_WARD)
        with pytest.raises(HanseError, match="not of a column of the project's schema"):
            policy.check_asking(by_ward(), AGES)


def test_groups_that_may_have_few_people_over_all_sites_are_refused_by_how_few():
    wards = {"column": "ward", "kind": "category", "values": ["burns", "stroke"]}
    policy = Policy.model_validate({"asking": {"group": 30}})
    policy.check_asking(by_ward(subgroups=wards | {"smallest": 30}), BY_WARD)
    said = refused(policy.check_asking, by_ward(subgroups=wards | {"smallest": 29}), BY_WARD)
    assert "asking.group: subgroups of 29 is asked, allowed: evaluate.subgroups.smallest of 30" in said


def test_a_job_that_does_not_insist_on_its_counts_is_answered_without_them():
    masked = Policy.model_validate({"masking": {"required": True}})
    asked = counting(["auroc"], 5888)
    optional = asked.model_copy(update={"config": {"evaluate": asked.config["evaluate"] | {"optional": True}}})
    assert "score_histograms" in refused(masked.check_asking, asked, AGES)
    masked.check_asking(optional, AGES)
    assert masked.counted(optional, WorkOutcome(None, 80, {}, counted="AAAA")) == ("", ("auroc",))


def test_what_is_counted_at_evaluations_holds_up_no_training():
    masked = Policy.model_validate({"masking": {"required": True}})
    masked.check_asking(counting(["auroc"], 5888).model_copy(update={"kind": TaskKind.TRAIN}), AGES)


def test_nothing_is_withheld_of_an_answer_in_which_nothing_was_counted():
    masked = Policy.model_validate({"masking": {"required": True}})
    assert masked.counted(counting(["auroc"], 5888), WorkOutcome(None, 80, {})) == ("", ())


def test_noise_that_nobody_limits_opens_no_fine_counts():
    noisy = counting(["auroc"], 5888, scale=0.001).model_copy(update={"privacy": NOISE})
    assert "score_histograms" in refused(
        Policy.model_validate({"masking": {"required": True}}).check_asking, noisy, AGES
    )
    limited = Policy.model_validate({"masking": {"required": True}, "privacy": {"epsilon": 1.0}})
    limited.check_asking(noisy, AGES)


def test_what_was_counted_leaves_where_the_policy_opens_how_finely():
    outcome, asked = WorkOutcome(None, 80, {}, counted="AAAA"), counting(["auroc"], 5888)
    masked = Policy.model_validate({"masking": {"required": True}})
    withheld = Policy.model_validate({"outputs": {"metrics": ["loss"]}})
    assert Policy().counted(asked, outcome) == ("AAAA", ())
    assert masked.counted(asked, outcome) == ("", ("auroc",))
    assert withheld.counted(asked, outcome) == ("", ("auroc",))
    # A metric that is not counted has a rule of its own: it neither holds counts back, nor is it withheld with them.
    both = counting(["auroc", "loss"], 5888)
    assert Policy.model_validate({"outputs": {"metrics": ["auroc"]}}).counted(both, outcome) == ("AAAA", ())
    assert masked.counted(both, outcome) == ("", ("auroc",))
    # Where noise is required, counts have it, or do not leave.
    private, coarse = Policy.model_validate({"privacy": {"required": True}}), counting(["f1"], 32)
    assert private.counted(coarse, outcome) == ("", ("f1",))
    assert private.counted(counting(["f1"], 32, scale=0.5), outcome) == ("AAAA", ())


def test_of_counts_that_are_withheld_the_metrics_are_named_that_the_policy_does_not_open():
    """Though how finely it is asked would be refused, too: then all are, where the policy opens them all."""
    outcome, asked = WorkOutcome(None, 80, {}, counted="AAAA"), counting(["auroc", "f1"], 5888)
    for metrics, held in ((["f1"], ("auroc",)), (["f1", "auroc"], ("auroc", "f1"))):
        policy = Policy.model_validate({"masking": {"required": True}, "outputs": {"metrics": metrics}})
        assert policy.counted(asked, outcome) == ("", held)


@pytest.mark.parametrize(
    "policy", [{"masking": {"required": True}}, {"privacy": {"required": True}}, {"outputs": {"updates": False}}]
)
def test_moments_of_a_column_of_few_cells_are_refused_without_their_number(policy):
    cautious = Policy.model_validate(policy)
    said = refused(cautious.check_cells, DataState(group=9))
    assert "asking.group: moments of a column with fewer cells is asked, allowed: at least 10" in said
    cautious.check_cells(DataState(group=10))
    cautious.check_cells(DataState())  # of columns all of which have none, or whose moments nobody asks
    Policy().check_cells(DataState(group=1))
    assert "at least 30" in refused(Policy.model_validate({"asking": {"group": 30}}).check_cells, DataState(group=29))


NOISE = PrivacyTerms(
    privacy=Privacy(placement="local", mechanism="laplace", noise_multiplier=4.0), rounds=2, round=1, active=3
)


def test_a_preparation_of_columns_that_the_project_does_not_declare_is_refused():
    with pytest.raises(HanseError, match="are not those of the project's schema"):
        Policy().check_asking(
            ages().model_copy(update={"config": {"prepare": [{"name": "height", "kind": "number"}]}}), AGES
        )


CEILINGS = [{"epsilon": 1.0}, {"project": {"epsilon": 1.0}}, {"projects": {"triage": {"epsilon": 1.0}}}]


@pytest.mark.parametrize("ceiling", CEILINGS)
def test_noise_stands_in_for_caution_only_where_a_task_has_it_and_the_site_limits_it(ceiling):
    """Without a ceiling a hub names noise so small that it hides nothing."""
    limited = Policy.model_validate({"masking": {"required": True}, "privacy": ceiling})
    unlimited = Policy.model_validate({"masking": {"required": True}})
    for policy, terms, trusted in (
        (limited, NOISE, True), (limited, None, False), (unlimited, NOISE, False), (unlimited, None, False)
    ):  # fmt: skip
        rare = preparation(rare=2).model_copy(update={"privacy": terms})
        noisy = by_ward(scale=0.5).model_copy(update={"privacy": terms})
        assert policy.trusts_noise(rare) is trusted
        assert policy.is_exact(rare) is not trusted
        assert Policy().is_exact(rare) is (terms is None)
        exact = by_ward().model_copy(update={"privacy": terms})
        assert "asking.group" in refused(policy.check_subgroups, exact, DataState(group=1))
        if trusted:
            policy.check_asking(rare, WARDS)
            policy.check_subgroups(noisy, DataState(group=1))
            with pytest.raises(HanseError, match=r"asking\.protocols: subgroup_counts") as caught:
                policy.check_asking(exact, BY_WARD)
            assert "privacy.epsilon" not in (caught.value.hint or ""), "it is set, and these counts have no noise"
        else:
            with pytest.raises(HanseError, match=r"asking\.protocols: category_counts") as caught:
                policy.check_asking(rare, WARDS)
            assert ("privacy.epsilon, which noise is trusted with" in (caught.value.hint or "")) is (terms is not None)
            assert "asking.group" in refused(policy.check_subgroups, noisy, DataState(group=1))


def test_a_task_with_noise_that_counts_without_it_is_held_to_how_finely_it_counts():
    policy = Policy.model_validate({"masking": {"required": True}, "privacy": {"epsilon": 1.0}})
    table = TabularSchema.model_validate({"features": [{"name": "age"}], "target": "died"})
    exact = counting(["auroc"], 5888).model_copy(update={"privacy": NOISE})
    assert "asking.protocols: score_histograms" in refused(policy.check_asking, exact, table)


def test_noise_that_nobody_limits_lets_a_job_choose_no_ends_of_its_own():
    """Between ends that a hub chooses there may be one person alone."""
    clipped = ages(clip=[53.0, 54.0], scale="standard").model_copy(update={"privacy": NOISE})
    said = refused(Policy.model_validate({"masking": {"required": True}}).check_asking, clipped, AGES)
    assert "age cut to ends of the job's own" in said
    limited = Policy.model_validate({"masking": {"required": True}, "privacy": {"epsilon": 1.0}})
    limited.check_asking(clipped, AGES)


@pytest.mark.parametrize("policy", [{}, {"masking": {"required": True}}])
def test_a_job_without_noise_chooses_its_ends_itself(policy):
    """What it asks then counts as exact, and is held to the protocols of exact sums."""
    Policy.model_validate(policy).check_asking(ages(clip=[53.0, 54.0], scale="standard"), AGES)


def test_a_preparation_by_classes_that_the_project_does_not_have_is_refused():
    rule = {"prepare": [{"name": "age", "kind": "number"}]}
    of_three = AGES.model_copy(update={"classes": 3})
    Policy().check_asking(task(kind=TaskKind.PREPARE, config=rule | {"classes": 3}), of_three)
    with pytest.raises(HanseError, match="4 classes are counted, the project's schema has others") as caught:
        Policy().check_asking(task(kind=TaskKind.PREPARE, config=rule | {"classes": 4}), of_three)
    assert caught.value.code is ErrorCode.SCHEMA_MISMATCH


def test_ends_of_a_jobs_own_are_refused_with_what_helps_which_for_dates_is_not_the_schema():
    schema = TabularSchema(
        features=(Column(name="age", minimum=0, maximum=120), Column(name="seen", kind="date")), target="ill", classes=2
    )
    own = {"age": NumberRule(name="age", kind="number", clip=(53.0, 54.0))}
    own["seen"] = NumberRule.model_validate({"name": "seen", "kind": "date", "clip": ["2026-01-01", "2026-12-31"]})
    said = {}
    for name, rule in own.items():
        with pytest.raises(HanseError) as caught:
            AskingPolicy().check_ends([rule], schema)
        said[name] = str(caught.value)
    assert "the schema of a new project gives it minimum and maximum" in said["age"]
    assert "minimum" not in said["seen"]
    for each in said.values():
        assert "privacy.epsilon" in each
        assert "scale: none and missing: constant" in each
    AskingPolicy().check_ends([NumberRule(name="age", kind="number", minimum=0, maximum=120)], schema)
