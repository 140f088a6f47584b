"""`hanse audit` runs the attacks as a program, and says what is missing where they are not installed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from hanse.cli import main
from hanse_privacy.attacks import __main__ as attacks
from unit.hanse.typed_command import Run


def audit(*arguments: str) -> subprocess.CompletedProcess[str]:
    """As somebody types it: two programs, one after the other."""
    program = "from hanse.cli import main; main()"
    command = [sys.executable, "-c", program, "audit", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_attacks_print_what_they_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = audit("collusion", "--sites", "4", "--iterations", "20", "--json")
    assert {row["attack"] for row in json.loads(found.stdout)} >= {"pooled", "mean"}
    assert attacks.main(["reuse", "--sites", "4", "--rounds", "2", "--json"]) == 0
    assert [row["rounds"] for row in json.loads(capsys.readouterr().out)] == [1, 2]
    losses = tmp_path / "losses.json"
    losses.write_text('{"members": [0.1], "others": [1.0]}')
    assert attacks.main(["membership", str(losses)]) == 0
    assert "auc" in capsys.readouterr().out


def test_the_audit_command_exits_with_the_status_of_the_attacks_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = audit("membership", str(tmp_path / "none"))
    assert refused.returncode == 2
    assert "members and others" in refused.stderr
    assert attacks.main(["collusion", "--sites", "2"]) == 2
    assert "3 or more" in capsys.readouterr().err


@pytest.mark.parametrize("attack", ["collusion", "reuse", "membership"])
def test_all_words_after_an_attack_are_its_programs_and_its_help_names_its_options(
    attack: str, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[list[str]] = []

    def begin(_program: str, words: list[str]) -> NoReturn:
        begun.append(words)
        raise SystemExit(0)

    monkeypatch.setattr(os, "execv", begin)
    assert run("audit", attack, "--help").out == ""
    assert begun == [[sys.executable, "-m", "hanse_privacy.attacks", attack, "--help"]]
    with pytest.raises(SystemExit):
        attacks.main([attack, "--help"])
    assert {"collusion": "--iterations", "reuse": "--rounds", "membership": "losses"}[attack] in capsys.readouterr().out


def test_without_the_privacy_distribution_the_command_names_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setattr(sys, "argv", ["hanse", "audit", "collusion"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 10
    assert "pip install --find-links WHEELS 'hanse-privacy'" in capfd.readouterr().err
