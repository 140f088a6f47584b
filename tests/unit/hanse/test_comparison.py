"""Runs beside each other: what their jobs have differently, which was better, and what each has sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import hanse
from hanse.comparison import ABSENT, Comparison
from hanse.history import History
from hanse.sweeps import plan_trials
from hanse.sweeps.outcome import Swept
from hanse.views import RunView
from hanse_fabric.errors import HanseError
from unit.hanse.scripted_hub import JOB, ScriptedHub, project_view, run_view
from unit.hanse.typed_command import Run

PROJECT = "/v1/projects/triage"
SLOW = {**JOB, "name": "slow", "tags": ["first", "night"], "train": {"optimizer": {"name": "sgd", "lr": 0.1}}}
FAST = {**JOB, "name": "fast", "train": {"optimizer": {"name": "sgd", "lr": 0.5}, "epochs": 2}}


def finished(*losses: float, name: str = "loss", size: int = 1000) -> list[dict[str, Any]]:
    return [
        {"round": at, "metrics": {name: loss, "train_loss": loss / 2}, "sites": {}, "bytes": {"down": size, "up": size}}
        for at, loss in enumerate(losses, start=1)
    ]


def a_run(number: int, job: dict[str, Any], rounds: list[dict[str, Any]]) -> tuple[RunView, History]:
    told = run_view("completed", run=f"run00000000{number}", job=job, name=job.get("name", ""))
    return RunView.model_validate({**told, "job": job}), History(rounds)


def test_settings_that_differ_are_columns_and_the_metric_has_its_best_round() -> None:
    found = Comparison([a_run(1, SLOW, finished(0.9, 0.8, 0.7)), a_run(2, FAST, finished(0.6, 0.3, 0.5, size=500))])
    assert found.metric == "loss"
    assert found.differences == {"train.epochs": (ABSENT, 2), "train.optimizer.lr": (0.1, 0.5)}
    first, second = found.table().rows
    assert first == (
        "run000000001",
        "slow",
        "completed",
        "1/3",
        ABSENT,
        "0.1",
        "0.7000",
        "0.7000",
        "3",
        "█▅▁",
        "6 kB",
    )
    assert second == ("run000000002", "fast", "completed", "1/3", "2", "0.5", "0.5000", "0.3000", "2", "█▁▆", "3 kB")
    frame = found.frame()
    assert frame.loc[("run000000002", 2), "loss"] == 0.3
    assert len(frame) == 6
    assert "train.epochs" in found._repr_html_()


def test_runs_of_other_metrics_are_compared_by_what_they_share() -> None:
    other = a_run(2, FAST, finished(0.5, name="mse"))
    assert Comparison([a_run(1, SLOW, finished(0.9)), other]).metric == "train_loss"
    by_one = Comparison([a_run(1, SLOW, finished(0.9)), other], "mse").table().rows
    assert [row[6] for row in by_one] == [ABSENT, "0.5000"]
    nothing = Comparison([a_run(1, JOB, []), a_run(2, JOB, [])])
    assert (nothing.metric, nothing.differences) == ("", {})
    assert [row[4:8] for row in nothing.table().rows] == [(ABSENT, ABSENT, ABSENT, "")] * 2
    assert len(nothing.frame()) == 0


def test_runs_that_stop_by_the_same_metric_are_compared_by_it() -> None:
    rounds = [{**each, "metrics": {**each["metrics"], "accuracy": 0.5, "auroc": 0.7}} for each in finished(0.9)]
    stopping = [a_run(at, {**JOB, "stop": {"metric": "auroc", "patience": 2}}, rounds) for at in (1, 2)]
    assert Comparison(stopping).metric == "auroc"
    assert Comparison([stopping[0], a_run(2, JOB, rounds)]).metric == "accuracy"


@pytest.mark.parametrize(
    ("numbers", "metric", "message"),
    [((1,), "", "two or more"), ((1, 1), "", "each once"), ((1, 2), "auroc", "one of loss, train_loss")],
)
def test_what_cannot_be_compared_is_refused(numbers: tuple[int, ...], metric: str, message: str) -> None:
    with pytest.raises(HanseError, match=message):
        Comparison([a_run(number, SLOW, finished(0.9)) for number in numbers], metric)


def test_a_picture_has_a_line_for_each_run(tmp_path: Path) -> None:
    found = Comparison([a_run(1, SLOW, finished(0.9, 0.8)), a_run(2, JOB, finished(0.6))])
    drawn = found.plot(tmp_path / "runs.svg").read_text()
    assert drawn.count("<!-- slow (run000000001) -->") == 1
    assert "<!-- run000000002 -->" in drawn
    assert "<!-- round -->" in drawn
    for path, message in (
        (tmp_path / "runs.txt", "ends with"),
        (tmp_path / "absent" / "runs.png", "cannot be written"),
    ):
        with pytest.raises(HanseError, match=message):
            found.plot(path)
    with pytest.raises(HanseError, match="measured one"):
        Comparison([a_run(1, JOB, []), a_run(2, JOB, [])]).plot(tmp_path / "none.svg")


def test_the_command_and_the_sdk_compare_runs_of_a_hub(
    hub: ScriptedHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    hub.answer("GET", PROJECT, (200, project_view()))
    for number, job, rounds in ((1, SLOW, finished(0.9)), (2, FAST, finished(0.6))):
        name = f"run00000000{number}"
        told = run_view("completed", run=name, job=job, name=job["name"], tags=job.get("tags", ()))
        hub.answer("GET", f"{PROJECT}/runs/{name}", (200, told))
        hub.answer("GET", f"{PROJECT}/runs/{name}/metrics", (200, {"rounds": rounds}))
        hub.answer("GET", f"{PROJECT}/runs", (200, {"runs": [told]}))
    with hanse.connect(hub.url, api_key="hanse_abc_secret") as client:
        found = client.projects.get("triage").compare("run000000001", "run000000002")
    assert found.differences["train.optimizer.lr"] == (0.1, 0.5)
    monkeypatch.setenv("HANSE_URL", hub.url)
    monkeypatch.setenv("HANSE_API_KEY", "hanse_abc_secret")
    monkeypatch.setenv("COLUMNS", "220")
    both = ("compare", "triage", "run000000001", "run000000002")
    status, shown, _ = run("run", *both, "--plot", str(tmp_path / "runs.png"))
    assert status == 0
    assert "train.optimizer.lr" in shown
    assert (tmp_path / "runs.png").stat().st_size > 5000
    assert '"differences"' in run("run", *both, "--json")[1]
    assert run("run", "compare", "triage", "run000000001")[0] == 2
    assert "fast" in run("run", "list", "triage")[1]
    assert "fast" not in run("run", "list", "triage", "--tag", "night")[1]


@pytest.mark.parametrize(
    ("keep", "mode", "compared", "value"),
    [
        ("best", None, "loss", 0.5),
        ("best", None, "auroc", 0.8),
        ("best", "max", "auroc", 0.9),
        ("last", None, "auroc", 0.7),
    ],
)
def test_a_sweep_compares_the_models_that_are_kept_and_not_the_best_round_of_another_metric(
    keep: str, mode: str | None, compared: str, value: float
) -> None:
    stop = {"metric": "loss", "mode": mode} if mode else {"metric": "loss"}
    job = {**JOB, "keep": keep, "stop": stop | {"patience": 5}}
    rounds = finished(0.9, 0.5, 0.6)
    for item, auroc in zip(rounds, (0.9, 0.8, 0.7), strict=True):
        item["metrics"]["auroc"] = auroc
    trials = plan_trials(job, {"train.optimizer.lr": [0.1, 0.2]})
    swept = Swept(trials, [a_run(1, job, rounds), a_run(2, job, rounds)], compared)
    assert swept.values == (value, value)
