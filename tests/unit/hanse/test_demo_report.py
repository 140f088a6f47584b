"""The demonstration's folder is its own; of its last page, what to type next can be typed where it stands."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Self

import pytest

from hanse.demo import folders
from hanse.demo.comparison import Comparison
from hanse.demo.gwas import GwasScenario
from hanse.demo.report import emit_report
from hanse.demo.scenario import DemoOutcome, Scenario
from hanse_fabric.errors import HanseError

SITES = {"north": 0.7, "south": 0.8}
OUTCOME = DemoOutcome(
    Comparison(0.9, SITES, SITES, 0.95, SITES, SITES), "a" * 64, 4.4, 33.3, 20, Path("demo"), dict.fromkeys(SITES, 300)
)


@pytest.mark.parametrize("active", [False, True])
def test_where_the_shell_does_not_find_the_commands_it_is_said_how_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], active: bool
) -> None:
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "hanse", "activate"):
        (programs / name).touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.executable", str(programs / "python"))
    monkeypatch.setenv("PATH", str(programs) if active else str(tmp_path))
    emit_report(OUTCOME)
    following = capsys.readouterr().out.partition("Next:\n")[2].splitlines()
    assert (following[0].split()[:2] == [".", ".venv/bin/activate"]) == (not active)
    assert "  hanse model verify demo/model.safetensors" in following


def test_a_demonstration_plays_in_no_folder_in_which_something_is(tmp_path: Path) -> None:
    for create in (partial(Scenario.create, sites=4, rounds=1), GwasScenario.create):
        assert create(tmp_path / "new", seed=1).folder == tmp_path / "new"
        (tmp_path / "hub").mkdir(exist_ok=True)
        with pytest.raises(HanseError, match=r"--dir: .* is there already, and not empty"):
            create(tmp_path, seed=1)


def test_two_demonstrations_that_begin_in_one_second_have_a_folder_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Now(datetime):
        @classmethod
        def now(cls) -> Self:
            return cls(2026, 11, 28, 12, 0, 0)

    monkeypatch.setattr(folders, "datetime", Now)
    monkeypatch.chdir(tmp_path)
    made = [Scenario.create(None, sites=4, rounds=1, seed=1).folder for _ in range(3)]
    assert made == [tmp_path / ".hanse/demo" / f"20261128-120000{number}" for number in ("", "-2", "-3")]
