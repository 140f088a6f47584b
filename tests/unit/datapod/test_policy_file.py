"""Reading the policy file: what it says, and what is wrong with it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from hanse_datapod.policy.site_policy import Policy, load_policy
from hanse_datapod.process.participant import read_policy
from hanse_fabric.errors import ErrorCode, HanseError

DOCUMENTED = Path(__file__).parents[3] / "docs" / "site-administrator.md"


def test_without_a_file_the_default_allows_no_site_code_and_no_round_of_one() -> None:
    policy = load_policy(None)
    assert policy == Policy()
    assert policy.site_code.digests == ()
    assert policy.minimum_participants == 2


def test_the_documented_policy_is_one(tmp_path: Path) -> None:
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


def test_a_missing_file_is_not_the_default(tmp_path: Path) -> None:
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
