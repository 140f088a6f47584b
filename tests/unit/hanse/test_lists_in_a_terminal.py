"""Lists of models and runs in a terminal of 80 columns: what is copied into the next command is whole, one version of a
run is its best, and a run ends with what to type next."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from hanse.display import Table
from unit.hanse.scripted_hub import JOB, ScriptedHub, frame, project_view, run_view, site_view, stream
from unit.hanse.signed_model import signed_model
from unit.hanse.typed_command import Run

PROJECT = "/v1/projects/triage"
METRICS = {"auroc": 0.8, "auroc_min": 0.7, "brier": 0.2, "loss": 0.5, "train_loss": 0.4, "train_steps": 12.0}
Typed = Callable[..., str]


@pytest.fixture
def typed(hub: ScriptedHub, run: Run, monkeypatch: pytest.MonkeyPatch) -> Typed:
    """What a command prints in a terminal of 80 columns."""
    monkeypatch.setenv("HANSE_URL", hub.url)
    monkeypatch.setenv("HANSE_API_KEY", "hanse_abc_secret")
    monkeypatch.setenv("COLUMNS", "80")
    hub.answer("GET", PROJECT, (200, project_view()))

    def typed(*words: str) -> str:
        done = run(*words)
        assert done.status == 0
        return done.out

    return typed


def version(number: int, run: str, *, best: bool = False, final: bool = False) -> dict[str, Any]:
    made = signed_model(metrics=METRICS).view
    lineage = made["lineage"] | {"run": run, "round": number}
    return {**made, "version": number, "lineage": lineage, "best": best, "final": final}


def test_of_each_run_one_version_is_its_best(hub: ScriptedHub, typed: Typed) -> None:
    one, other = "run000000001", "run000000002"
    models = [version(1, one, best=True), version(2, one, best=True), version(3, one, final=True)]
    models += [version(4, other, best=True), version(5, other, best=True, final=True)]
    hub.answer("GET", f"{PROJECT}/models", (200, {"models": models}))
    _, head, *rows = typed("model", "list", "triage").splitlines()
    assert head.split() == ["version", "stage", "run", "round", "digest", "metrics"]
    told = [row.split() for row in rows if row[0] != " "]
    marked = {row[0]: [word.strip(",") for word in row[4:-2] if word.strip(",") in ("best", "last")] for row in told}
    assert marked == {"1": [], "2": ["best"], "3": ["last"], "4": [], "5": ["best", "last"]}
    assert all(row[2] in (one, other) for row in told)
    shown = typed("model", "list", "triage")
    assert "auroc 0.8" in shown
    assert not any(word in shown for word in ("train_", "_min", "brier"))


def test_a_watched_run_ends_with_what_to_type_next(hub: ScriptedHub, typed: Typed) -> None:
    run = f"{PROJECT}/runs/run000000001"
    for said in ({"model_version": 7, "best_version": 4}, {"model_version": 7}, {}):
        hub.answer("GET", run, (200, run_view("completed", **said)))
        hub.answer("GET", f"{run}/events", stream(frame(1, "state", state="completed")))
        lines = typed("run", "watch", "triage", "run000000001").splitlines()
        best = ["The best model is version 4, the last one version 7."] if "best_version" in said else []
        number = said.get("best_version") or said.get("model_version")
        following = [f"Next: hanse model download triage {number} triage.safetensors"] if number else []
        assert lines == ["run is completed", *best, *following]


def test_when_a_site_was_last_seen_is_told_to_the_second(hub: ScriptedHub, typed: Typed) -> None:
    seen = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    hub.answer("GET", f"{PROJECT}/participants", (200, {"participants": [site_view(last_seen=seen)]}))
    shown = typed("project", "participants", "triage")
    assert {f"{seen.astimezone():%Y-%m-%d}", f"{seen.astimezone():%H:%M:%S}"} <= {*shown.split()}


def test_what_was_downloaded_is_used_next_where_it_takes_tables(hub: ScriptedHub, typed: Typed) -> None:
    schema = {"kind": "tabular", "features": [{"name": "age"}], "target": "ill", "task": "classification", "classes": 2}
    for problem, said in (({"schema": schema, "model": {"name": "mlp"}}, True), (None, False)):
        model = signed_model(problem=problem)

        async def file(request: Any, content: bytes = model.content) -> Any:
            from aiohttp import web

            return web.Response(body=content)

        hub.answer("GET", f"{PROJECT}/models/1", (200, model.view))
        link = {"url": f"{hub.url}/b/x", "version": model.view}
        hub.answer("GET", f"{PROJECT}/models/1/download", (200, link))
        hub.answer("GET", "/b/x", file)
        shown = typed("model", "download", "triage", "1", "t.safetensors")
        assert ("Next: hanse model predict t.safetensors TABLE.csv PREDICTIONS.csv" in shown) == said


def test_runs_are_listed_with_whole_names_and_their_reasons_below(hub: ScriptedHub, typed: Typed) -> None:
    why = "quorum: 0 of 3 participants answered: " + ", ".join(f"site-{at} refused" for at in range(40))
    runs = [
        run_view("completed", metrics=METRICS, tags=["sweep:0123456789ab", "trial:0123456789ab"]),
        run_view("failed", run="run000000002", reason=why),
    ]
    listed = [{name: said for name, said in run.items() if name not in ("job", "privacy")} for run in runs]
    hub.answer("GET", f"{PROJECT}/runs", (200, {"runs": listed}))
    lines = typed("run", "list", "triage").splitlines()
    table, below = lines[:-1], lines[-1]
    assert all(len(line) <= 80 for line in table)
    assert any(line.startswith("run000000001 ") and " completed " in line for line in table)
    assert below.startswith("run000000002: quorum: 0 of 3 participants answered: site-0 refused")
    assert below.endswith("... (hanse run show)")
    assert len(below) < 220


def test_runs_with_many_other_settings_are_columns_and_defaults_are_none_of_them(
    hub: ScriptedHub, typed: Typed
) -> None:
    masked = JOB | {"name": "by night", "secure_aggregation": {"mode": "compensator"}, "train": {"epochs": 3}}
    masked |= {"stop": {"metric": "loss", "patience": 3}, "keep": "best", "rounds": 40}
    for at, job in enumerate((JOB, masked), start=1):
        run = f"run00000000{at}"
        hub.answer("GET", f"{PROJECT}/runs/{run}", (200, run_view("completed", run=run, job=job)))
        hub.answer("GET", f"{PROJECT}/runs/{run}/metrics", (200, {"rounds": []}))
    shown = typed("run", "compare", "triage", "run000000001", "run000000002")
    settings = {line.split()[0]: line.split()[1:] for line in shown.splitlines()[1:]}
    assert settings["run"] == ["run000000001", "run000000002"]
    assert settings["secure_aggregation.mode"] == ["-", "compensator"]
    assert settings["keep"] == ["-", "best"]
    assert settings["train.epochs"] == ["-", "3"]
    assert not any(name.startswith("secure_aggregation.") for name in settings if not name.endswith(".mode"))
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_a_table_is_turned_and_back() -> None:
    table = Table(("a", "b", "c"), [("1", "22", "333"), ("4", "5", "6")])
    assert table.width == len("1  22  333")
    assert str(table.turned()) == "a  1    4\nb  22   5\nc  333  6"
    assert str(table.turned().turned()) == str(table)


def test_a_run_is_shown_in_words_and_not_as_python(hub: ScriptedHub, typed: Typed) -> None:
    run = f"{PROJECT}/runs/run000000001"
    hub.answer("GET", run, (200, run_view("completed", metrics=METRICS)))
    hub.answer("GET", f"{run}/metrics", (200, {"rounds": []}))
    lines = dict(line.split(maxsplit=1) for line in typed("run", "show", "triage", "run000000001").splitlines())
    assert lines["metrics"] == "auroc 0.8000, brier 0.2000, loss 0.5000"
    assert lines["created_at"].startswith("2026-01-0")
    assert "outputs" not in lines
    assert "+00:00" not in lines["updated_at"]
