"""What the policy's section `studies` refuses, and in which words; and what no policy can allow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hanse_datapod.masking.plan import smallest_sum
from hanse_datapod.policy.site_policy import Policy, load_policy
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import MaskingMode, Task, TaskKind
from hanse_schemas.study import Study
from unit.datapod.site_actors import task
from unit.datapod.study_actors import masked_step, plan, study_policy, study_step

OPEN_HEARTED: dict[str, Any] = {
    "minimum_participants": 1, "masking": {"minimum": 1},
    "studies": {"masked": False, "minimum_cohorts": 1, "minimum_samples": 1},
}  # fmt: skip
BOLD = Study(test="linear", few_samples=True)


@pytest.mark.parametrize(
    ("rules", "asked", "rule", "said"),
    [
        ({"studies": {"tests": ["linear"]}}, masked_step(), "studies.tests", "chi_square is asked, allowed: linear"),
        ({}, masked_step(peers=2), "studies.minimum_cohorts", "a study of 2 is asked, allowed: at least 3"),
        ({"studies": {"minimum_cohorts": 5}}, masked_step(peers=4), "studies.minimum_cohorts", "at least 5"),
        ({"studies": {"minimum_cohorts": 2}}, masked_step(peers=2), "masking.minimum", "a sum of 2"),
        ({}, masked_step(study=BOLD), "studies.few_samples", "samples may barely exceed its covariates is asked"),
        ({}, study_step(study=BOLD), "studies.few_samples", "every site's administrator sets it"),
        ({}, masked_step(mode=MaskingMode.RING), "studies.masked", "mode ring, which hides nothing"),
        ({}, study_step("c", function="counts"), "studies", "step counts without masking"),
        (OPEN_HEARTED, study_step("c", function="counts", peers=1), "studies", "no policy allows it"),
        ({"masking": {"required": True}}, masked_step(), "masking.compensator", "none is pinned"),
        ({"outputs": {"updates": False}}, masked_step(), "outputs.updates", "a study is asked"),
        ({"privacy": {"required": True}}, masked_step(), "privacy.required", "a study, whose sums are exact"),
        ({"projects": ["other"]}, masked_step(), "projects", "triage is asked, allowed: other"),
    ],
)
def test_what_the_site_does_not_want_is_refused_with_the_rule(
    rules: dict[str, Any], asked: Task, rule: str, said: str
) -> None:
    with pytest.raises(HanseError) as raised:
        study_policy(**rules).check(asked)
    assert raised.value.code is ErrorCode.POLICY
    assert f"forbids it: {rule}: " in raised.value.message
    assert said in str(raised.value)


def test_the_default_policy_takes_part_in_no_study_and_says_what_would() -> None:
    with pytest.raises(HanseError, match=r"workflows: association_study is asked, allowed: federated_averaging") as no:
        Policy().check(masked_step())
    assert "workflows: [association_study]" in str(no.value)


@pytest.mark.parametrize(
    ("rules", "asked"),
    [
        ({}, masked_step()),
        ({}, study_step()),
        ({"masking": {"required": True}}, study_step()),
        ({"models": ["logistic"]}, study_step()),
        ({"studies": {"minimum_cohorts": 2}}, study_step(peers=2)),
        (OPEN_HEARTED, masked_step(mode=MaskingMode.RING, peers=1)),
        ({"models": ["logistic"]}, study_step("keys", kind=TaskKind.ADVERTISE, config={})),
        ({"studies": {"few_samples": True}}, masked_step(study=BOLD)),
        ({"studies": {"tests": ["trend"]}}, masked_step(study=Study(test="trend"))),
    ],
)
def test_what_the_site_wants_is_done(rules: dict[str, Any], asked: Task) -> None:
    study_policy(**rules).check(asked)


@pytest.mark.parametrize("fields", [{"stochastic": True}, {"refuse_out_of_range": False}, {"largest_weight": 7}])
def test_a_ring_that_would_weight_or_clip_the_sums_of_a_study_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(HanseError, match="neither weighted nor clipped nor rounded at random"):
        study_policy().check(masked_step(rings=plan(**fields)))


def test_how_many_people_there_are_is_not_in_the_refusal() -> None:
    with pytest.raises(HanseError) as raised:
        study_policy(studies={"minimum_samples": 50}).studies.check_samples(37)
    assert "37" not in raised.value.message
    study_policy(studies={"minimum_samples": 50}).studies.check_samples(50)


def test_a_policy_for_studies_leaves_training_to_its_own_rules() -> None:
    policy = study_policy(workflows=["federated_averaging", "association_study"], models=["logistic"])
    with pytest.raises(HanseError, match="models"):
        policy.check(task())


def test_a_sum_of_two_is_for_studies_of_which_both_sections_of_the_policy_say_so() -> None:
    """A hub that lies asks for two in a round of training, too: the compensator and the other sites are told three."""
    two = study_policy(studies={"minimum_cohorts": 2}, masking={"minimum": 2})
    training = task(masking=masked_step().masking)

    def least(policy: Policy, asked: Task) -> int:
        assert asked.masking is not None
        return smallest_sum(policy, asked, asked.masking.model_copy(update={"minimum": 2}))

    assert least(two, masked_step(peers=2)) == 2
    assert least(two, training) == 3
    assert least(study_policy(masking={"minimum": 1}), masked_step(peers=2)) == 3
    assert least(study_policy(studies={"minimum_cohorts": 2}), masked_step(peers=2)) == 3


def test_an_unknown_test_in_the_file_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("workflows: [association_study]\nstudies: {tests: [chisq], minimum_cohorts: 3}\n")
    with pytest.raises(HanseError, match=r"studies\.tests\.0.*chi_square"):
        load_policy(path)
    path.write_text("workflows: [association_study]\nstudies: {tests: [chi_square], minimum_samples: 25}\n")
    assert load_policy(path).studies.minimum_samples == 25


def test_a_step_without_a_study_section_is_refused() -> None:
    with pytest.raises(HanseError, match="study") as raised:
        study_policy().check(study_step(config={"step": "open"}))
    assert raised.value.code is ErrorCode.INVALID_INPUT


def test_rules_for_studies_and_for_training_are_not_evaded_by_the_name_of_a_workflow() -> None:
    both = study_policy(workflows=["federated_averaging", "association_study"])
    for asked in (task(workflow="association_study"), study_step(workflow="federated_averaging")):
        with pytest.raises(HanseError, match=r"workflows: work of kind .* in workflow") as raised:
            both.check(asked)
        assert raised.value.code is ErrorCode.POLICY
