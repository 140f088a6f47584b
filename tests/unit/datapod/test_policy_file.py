"""Reading the policy file: what it says, and what is wrong with it."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from hanse_datapod.policy.site_policy import (
    LimitPolicy,
    OutputPolicy,
    Policy,
    SiteCodePolicy,
    check_policy,
    load_policy,
)
from hanse_datapod.process.participant import read_policy
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ObjectRef, Task, TaskKind
from unit.datapod.site_actors import task

DOCUMENTED = Path(__file__).parents[3] / "docs" / "site-administrator.md"


def test_the_default_policy_allows_no_site_code_and_no_round_of_one_site() -> None:
    policy = load_policy(None)
    assert policy == Policy()
    assert policy.site_code == SiteCodePolicy(digests=(), approvals=False, flower=None, nvflare=None)
    assert policy.minimum_participants == 2
    assert policy.limits == LimitPolicy(
        seconds=3600, memory_mib=None, model_mib=4096, mib_a_day=None, processes=1
    )  # fmt: skip
    assert (policy.outputs.updates, policy.outputs.metrics, policy.outputs.minimum_examples) == (True, None, 1)


def test_the_documented_policy_is_a_valid_policy(tmp_path: Path) -> None:
    text = DOCUMENTED.read_text().split("## Policy\n")[1].split("```yaml\n")[1].split("```")[0]
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    policy = load_policy(path)
    assert policy.projects == ("triage",)
    assert policy.limits.memory_mib == 4096


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("minimum_participant: 3", "minimum_participant: Extra inputs"),
        ("minimum_participants: 0", "minimum_participants"),
        ("outputs: {metrics: loss}", "outputs.metrics"),
        ("[1, 2", "not YAML"),
        ("site_code: {digests: [abc]}", "site_code.digests.0"),
        ("", "it is empty"),
        ("# rules to come", "it is empty"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    with pytest.raises(HanseError) as caught:
        load_policy(path)
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert said in caught.value.message
    assert "policy.yaml" in caught.value.message


def test_who_writes_a_policy_of_no_rules_has_the_default(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("{}")
    assert load_policy(path) == Policy()


def test_a_missing_policy_file_is_an_error_and_not_the_default_policy(tmp_path: Path) -> None:
    with pytest.raises(HanseError) as caught:
        load_policy(tmp_path / "none.yaml")
    assert caught.value.code is ErrorCode.NOT_FOUND


def test_mounted_site_code_needs_the_policys_approval(tmp_path: Path) -> None:
    code = tmp_path / "code.py"
    code.write_text("def train(model, data, config): ...\n")
    digest = hashlib.sha256(code.read_bytes()).hexdigest()
    with pytest.raises(HanseError, match=digest) as caught:
        read_policy(None, code)
    assert caught.value.code is ErrorCode.POLICY
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"site_code: {{digests: [{digest}]}}")
    assert read_policy(policy, code).site_code.digests == (digest,)
    assert read_policy(policy, tmp_path).site_code.digests == (digest,)


def test_a_model_one_byte_above_the_limit_is_refused_and_one_at_it_is_not() -> None:
    policy = Policy(limits=LimitPolicy(model_mib=3))
    policy.check(task(model=ObjectRef(digest="0" * 64, size=3 << 20, key="models/triage/m")))
    with pytest.raises(HanseError, match=r"limits\.model_mib") as caught:
        policy.check(task(model=ObjectRef(digest="0" * 64, size=(3 << 20) + 1, key="models/triage/m")))
    assert caught.value.code is ErrorCode.POLICY


@pytest.mark.parametrize(
    ("section", "least"),
    [
        ("minimum_participants", 1), ("outputs.minimum_examples", 1), ("limits.model_mib", 1),
        ("limits.memory_mib", 64), ("limits.processes", 1),
    ],
)  # fmt: skip
def test_the_least_that_a_limit_may_be_is_allowed_and_one_less_is_not(section: str, least: int) -> None:
    room, _, name = section.rpartition(".")

    def said(number: int) -> dict[str, object]:
        return {room: {name: number}} if room else {name: number}

    check_policy(said(least), "policy file")
    with pytest.raises(HanseError, match=re.escape(section)):
        check_policy(said(least - 1), "policy file")


@pytest.mark.parametrize("name", ["seconds", "mib_a_day"])
def test_no_task_has_no_time_and_no_day_no_line(name: str) -> None:
    check_policy({"limits": {name: 0.001}}, "policy file")
    with pytest.raises(HanseError, match=f"limits.{name}"):
        check_policy({"limits": {name: 0}}, "policy file")


def test_a_task_has_64_processes_at_most() -> None:
    check_policy({"limits": {"processes": 64}}, "policy file")
    with pytest.raises(HanseError, match=r"limits\.processes"):
        check_policy({"limits": {"processes": 65}}, "policy file")


def test_only_the_models_that_are_named_are_trained() -> None:
    policy = Policy(models=("mlp", "cnn"))
    policy.check(task(config={"model": {"name": "cnn"}}))
    for config in ({"model": {"name": "linear"}}, {"model": {}}, {}):
        with pytest.raises(HanseError, match="models") as caught:
            policy.check(task(config=config))
        assert caught.value.code is ErrorCode.POLICY


def test_messages_that_name_no_model_are_not_held_to_the_models_that_are_named() -> None:
    asked = {"prepare": [{"name": "age", "kind": "number"}]}
    Policy(models=("mlp",)).check(task(kind=TaskKind.PREPARE, config=asked))


def test_a_workflow_that_is_no_study_is_refused_without_a_word_on_studies() -> None:
    with pytest.raises(HanseError, match="workflows: cyclic is asked") as caught:
        Policy().check(task(workflow="cyclic"))
    assert "studies" not in (caught.value.hint or "")


def test_too_few_examples_are_refused_and_the_number_is_told_unless_it_must_stay_hidden() -> None:
    policy = Policy(outputs=OutputPolicy(minimum_examples=20))
    policy.check_examples(20)
    with pytest.raises(HanseError, match="19 examples") as caught:
        policy.check_examples(19)
    assert caught.value.code is ErrorCode.POLICY
    with pytest.raises(HanseError, match="a result of fewer examples") as hidden:
        policy.check_examples(19, tell=False)
    assert "19" not in str(hidden.value)


def test_metrics_that_are_not_named_are_withheld_and_told_in_the_order_of_their_names() -> None:
    made = {"loss": 0.5, "zeta": 1.0, "auc": 0.9, "kappa": 0.3}
    assert Policy(outputs=OutputPolicy(metrics=("loss",))).metrics(made) == ({"loss": 0.5}, ("auc", "kappa", "zeta"))
    assert Policy().metrics(made) == (made, ())


@pytest.mark.parametrize(
    ("policy", "refused", "allowed"),
    [
        ({"projects": ("heart", "triage")}, {"project": "lung"}, {"project": "heart"}),
        ({"workflows": ("cyclic",)}, {"workflow": "federated_averaging"}, {"workflow": "cyclic"}),
        ({"minimum_participants": 4}, {"peers": 3}, {"peers": 4}),
        (
            {"minimum_participants": 4},
            {"peers": 3, "kind": TaskKind.EVALUATE},
            {"peers": 1, "kind": TaskKind.INITIALIZE},
        ),
        ({"outputs": {"updates": False}}, {"kind": TaskKind.TRAIN}, {"kind": TaskKind.EVALUATE}),
        (
            {"site_code": {"digests": ("a" * 64,)}},
            {"config": {"code": {"digest": "b" * 64}}},
            {"config": {"code": {"digest": "a" * 64}}},
        ),
        (
            {"site_code": {"digests": ("a" * 64,), "flower": {"interpreter": "/opt/flower/bin/python"}}},
            {"config": {"code": {"digest": "a" * 64, "kind": "nvflare"}}},
            {"config": {"code": {"digest": "a" * 64, "kind": "flower"}}},
        ),
    ],
    ids=[
        "projects",
        "workflows",
        "minimum_participants",
        "first model",
        "outputs.updates",
        "site_code.digests",
        "an interpreter for foreign code",
    ],
)
def test_a_rule_refuses_what_it_forbids_and_nothing_else(
    policy: dict[str, object], refused: dict[str, object], allowed: dict[str, object]
) -> None:
    rules = Policy.model_validate(policy)

    def asked(fields: dict[str, object]) -> Task:
        return task(**fields)

    rules.check(asked(allowed))
    with pytest.raises(HanseError) as caught:
        rules.check(asked(refused))
    assert caught.value.code is ErrorCode.POLICY
    assert str(next(iter(policy))) in caught.value.message
