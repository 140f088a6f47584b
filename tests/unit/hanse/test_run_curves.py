"""`hanse run curves` and `hanse run show`: curves, tables and groups, with the classes' names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hanse
from hanse.figures import draw_curves
from hanse_fabric.errors import HanseError
from hanse_learning.pooled import Counts
from hanse_learning.pooled.count import counts_of
from hanse_learning.pooled.derive import pooled
from hanse_schemas.subgroups import Subgroups
from unit.hanse.scripted_hub import JOB, ScriptedHub, project_view, run_view
from unit.hanse.typed_command import Run

PROJECT, RUN = "/v1/projects/triage", "run000000001"
LABELS = ("alive", "dead [bold]")
SCHEMA = {
    "kind": "tabular", "features": [{"name": "age"}], "target": "died", "labels": list(LABELS), "classes": 2
}  # fmt: skip
Command = Callable[..., tuple[int, str]]


def drawn() -> dict[str, Any]:
    rng = np.random.default_rng(4)
    y, groups = rng.integers(0, 2, 400), rng.integers(0, 3, 400)
    groups[groups == 2] = np.where(np.arange((groups == 2).sum()) < 3, 2, 0)
    wards = Subgroups(column="ward", kind="category", values=("burns", "stroke"))
    counts = Counts(("auroc", "f1", "brier"), "classification", 2, 512, wards)
    outputs = rng.normal(size=(400, 2)) + np.eye(2)[y]
    return json.loads(json.dumps(pooled(counts, counts_of(counts, outputs, y, groups)).curves))  # type: ignore[no-any-return]


@pytest.fixture
def command(hub: ScriptedHub, monkeypatch: pytest.MonkeyPatch, run: Run) -> Command:
    hub.answer("GET", PROJECT, (200, project_view(schema=SCHEMA)))
    hub.answer("GET", f"{PROJECT}/runs/{RUN}", (200, run_view("completed", run=RUN, job=JOB)))
    rounds = [{"round": 1, "metrics": {"f1": 0.7}, "sites": {}, "bytes": {}, "curves": drawn()}]
    hub.answer("GET", f"{PROJECT}/runs/{RUN}/metrics", (200, {"rounds": rounds}))
    for name, value in (("HANSE_URL", hub.url), ("HANSE_API_KEY", "hanse_abc_secret")):
        monkeypatch.setenv(name, value)

    def command(*arguments: object) -> tuple[int, str]:
        return run("run", arguments[0], "triage", RUN, *arguments[1:])[:2]

    return command


def test_the_command_has_every_table_with_the_classes_names(command: Command) -> None:
    status, shown = command("curves")
    assert status == 0
    for title in ("By class", "Confusion matrix", "Calibration", "By group", "ROC", "Precision by recall"):
        assert title in shown
    told = drawn()
    row = next(line for line in shown[shown.index("Confusion matrix") :].splitlines() if line.startswith("1 (dead"))
    assert row.split()[-2:] == [str(number) for number in told["confusion"][1]]
    assert "1 (dead [bold])" in row  # what people wrote is no markup
    assert "Of 400 test examples of 1 sites" in shown
    assert "Not told alone:" in shown
    roc = shown[shown.index("ROC") : shown.index("Precision by recall")].splitlines()[2:]
    points = [tuple(map(float, line.split()[-2:])) for line in roc if line.startswith("1 ")]
    assert points[0] == (0.0, 0.0)
    assert points[-1] == (1.0, 1.0)
    assert points == sorted(points)
    assert 5 <= len(points) <= 14


def test_json_has_all_points_and_show_has_the_confusion_matrix(command: Command) -> None:
    told = json.loads(command("curves", "--json")[1])
    assert told == {"round": 1, "class_names": list(LABELS), **drawn()}
    assert "Confusion matrix, round 1" in command("show")[1]
    assert command("curves", "--round", 7)[0] != 0


REGRESSION = {**JOB, "model": {"name": "linear"}, "evaluate": {"metrics": ["concordance", "mae"], "classes": 0}}


@pytest.mark.parametrize(
    ("state", "reason", "job", "said"),
    [
        ("failed", "south: column age, line 2", REGRESSION,
         "no evaluation of concordance, mae was finished: south: column age, line 2"),
        ("running", "", REGRESSION, "wait for its first evaluation"),
        ("completed", "", {**JOB, "evaluate": {"metrics": []}}, "auroc, f1, ece, or of a regression concordance"),
    ],
)  # fmt: skip
def test_a_run_without_curves_says_why_there_are_none(
    hub: ScriptedHub, state: str, reason: str, job: dict[str, Any], said: str
) -> None:
    hub.answer("GET", PROJECT, (200, project_view()))
    hub.answer("GET", f"{PROJECT}/runs/{RUN}", (200, run_view(state, run=RUN, job=job, reason=reason)))
    hub.answer("GET", f"{PROJECT}/runs/{RUN}/metrics", (200, {"rounds": []}))
    with hanse.connect(hub.url, api_key="hanse_abc_secret") as client:
        run = client.projects.get("triage").get_run(RUN)
        with pytest.raises(HanseError, match=rf"curves of run {RUN}: there are none \({state}\)") as raised:
            run.curves()
    assert said in raised.value.hint


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_picture_has_all_three_curves(command: Command, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"curves.{ending}"
    assert command("curves", "--plot", file)[0] == 0
    assert file.stat().st_size > 5000
    with pytest.raises(HanseError, match=r"\.svg, \.png or \.pdf"):
        draw_curves(drawn(), tmp_path / "curves.txt")
    with pytest.raises(HanseError, match="evaluation that has some"):
        draw_curves({"confusion": [[1, 0], [0, 1]]}, file)
