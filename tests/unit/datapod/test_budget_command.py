"""The budget of a policy file, and the command that shows what is spent of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hanse_datapod.cli import main
from hanse_datapod.policy.site_policy import load_policy
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.ledger import NAME
from unit.datapod.private_tasks import reserved, terms
from unit.datapod.site_actors import task


def test_the_policy_file_has_the_budget(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("privacy: {epsilon: 4, projects: {triage: {epsilon: 1, delta: 1.0e-6}}}")
    policy = load_policy(file).privacy
    assert (policy.epsilon, policy.projects["triage"].delta) == (4, 1e-6)
    file.write_text("privacy: {epsilon: -1}")
    with pytest.raises(HanseError, match=r"privacy\.epsilon"):
        load_policy(file)


def test_the_command_shows_what_is_spent_and_what_remains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["budget", "--home", str(tmp_path / "elsewhere")]) == 4
    reserved(tmp_path, task(privacy=terms()))
    file = tmp_path / "policy.yaml"
    file.write_text("privacy: {epsilon: 2, delta: 0, project: {epsilon: 1, delta: 0}}")
    capsys.readouterr()
    assert main(["budget", "--home", str(tmp_path), "--policy", str(file)]) == 0
    assert "triage: epsilon 0.5 is spent at delta 0; allowed: 1, 0.5 remains" in capsys.readouterr().out
    assert main(["budget", "--home", str(tmp_path), "--policy", str(file), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [row["remaining"] for row in shown["balances"]] == [1.5, 0.5]
    (tmp_path / f"{NAME}.jsonl").write_bytes(b"{}\n")
    assert main(["budget", "--home", str(tmp_path)]) == 7


def test_a_site_that_was_never_charged_is_shown_its_whole_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("privacy: {epsilon: 2, delta: 0, projects: {triage: {epsilon: 1, delta: 0}}}")
    command = ["budget", "--home", str(tmp_path), "--policy", str(file)]
    assert main(command) == 0
    assert "triage: epsilon 0 is spent at delta 0; allowed: 1, 1 remains" in capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    assert [row["remaining"] for row in json.loads(capsys.readouterr().out)["balances"]] == [2, 1]
    assert [path.name for path in tmp_path.iterdir()] == ["policy.yaml"]


def test_a_removed_ledger_is_reported_by_the_command_and_refuses_the_next_charge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reserved(tmp_path, task(privacy=terms()))
    (tmp_path / f"{NAME}.jsonl").unlink()
    assert main(["budget", "--home", str(tmp_path)]) == 7
    assert "privacy.jsonl is missing" in capsys.readouterr().out
    with pytest.raises(HanseError) as caught:
        reserved(tmp_path, task(privacy=terms()))
    assert caught.value.code is ErrorCode.TAMPERED


@pytest.mark.parametrize("epsilon", ["0", "-1", ".nan", ".inf", "much"])
@pytest.mark.parametrize(
    "section", ["epsilon: {}", "project: {{epsilon: {}}}", "projects: {{triage: {{epsilon: {}}}}}"]
)
def test_an_invalid_budget_is_refused_by_name(tmp_path: Path, section: str, epsilon: str) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(f"privacy: {{{section.format(epsilon)}}}")
    named = r"not finite in .*line 1.*epsilon: " if epsilon in (".nan", ".inf") else r"privacy\..*epsilon"
    with pytest.raises(HanseError, match=named) as caught:
        load_policy(file)
    assert caught.value.code is ErrorCode.INVALID_INPUT
