"""`hanse audit` runs the attacks as a program, and says what is missing where they are not installed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from hanse.cli import main


def audit(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = "from hanse.cli import main; main()"
    command = [sys.executable, "-c", program, "audit", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_attacks_print_what_they_found(tmp_path: Path) -> None:
    found = audit("collusion", "--sites", "4", "--iterations", "20", "--json")
    assert {row["attack"] for row in json.loads(found.stdout)} >= {"pooled", "mean"}
    reused = audit("reuse", "--sites", "4", "--rounds", "2", "--json")
    assert [row["rounds"] for row in json.loads(reused.stdout)] == [1, 2]
    losses = tmp_path / "losses.json"
    losses.write_text('{"members": [0.1], "others": [1.0]}')
    assert "auc" in audit("membership", str(losses)).stdout


def test_the_audit_command_exits_with_the_status_of_the_attacks_error(tmp_path: Path) -> None:
    refused = audit("membership", str(tmp_path / "none"))
    assert refused.returncode == 2
    assert "members and others" in refused.stderr
    few = audit("collusion", "--sites", "2")
    assert few.returncode == 2
    assert "3 or more" in few.stderr


def test_the_help_of_an_attack_names_its_options() -> None:
    assert "--iterations" in audit("collusion", "--help").stdout


def test_without_the_privacy_distribution_the_command_names_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setattr(sys, "argv", ["hanse", "audit", "collusion"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 10
    assert "pip install --find-links WHEELS 'hanse-privacy'" in capfd.readouterr().err
