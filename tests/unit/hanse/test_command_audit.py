"""`hanse audit` runs the attacks as a program, and says what is missing where they are not installed."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from hanse.cli import main


def audit(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["hanse", "audit", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_collusion_and_membership_print_what_the_attacks_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert audit(monkeypatch, "collusion", "--sites", "4", "--iterations", "20", "--json") == 0
    assert {row["attack"] for row in json.loads(capfd.readouterr().out)} >= {"pooled", "mean"}
    losses = tmp_path / "losses.json"
    losses.write_text('{"members": [0.1], "others": [1.0]}')
    assert audit(monkeypatch, "membership", str(losses)) == 0
    assert "auc" in capfd.readouterr().out


def test_the_audit_command_exits_with_the_status_of_the_attacks_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert audit(monkeypatch, "membership", str(tmp_path / "none")) == 2
    assert "members and others" in capfd.readouterr().err


def test_without_the_privacy_distribution_the_command_names_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert audit(monkeypatch, "collusion") == 10
    assert "pip install hanse-privacy" in capfd.readouterr().err
