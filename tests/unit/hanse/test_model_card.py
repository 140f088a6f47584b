"""A model's card: what the hub knows of a version, and the questions that are left to its owners."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import hanse
from hanse.cli import main
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_schemas.schema import ArraySchema, Column, DataSchema, Label, OpenSchema, TabularSchema
from unit.hanse.scripted_hub import JOB, ScriptedHub, error, project_view, run_view
from unit.hanse.signed_model import SignedModel, signed_model

PROJECT = "/v1/projects/triage"
TABLE = TabularSchema(
    features=(
        Column(name="age", unit="years", minimum=0, maximum=120),
        Column(name="sex|*", kind="category", values=("f", "m")),
    ),
    target="ill",
    classes=2,
)


def problem_of(schema: DataSchema) -> dict[str, Any]:
    return {"schema": schema.model_dump(mode="json"), "model": {"name": "logistic", "dtype": "float32"}}


def answering(hub: ScriptedHub, model: SignedModel, run: tuple[int, Any]) -> None:
    hub.answer("GET", PROJECT, (200, project_view()))
    hub.answer("GET", f"{PROJECT}/models/1", (200, model.view))
    hub.answer("GET", f"{PROJECT}/runs/{model.record.lineage.run}", run)


def card_at(hub: ScriptedHub) -> str:
    with hanse.connect(hub.url, api_key="hanse_abc_secret") as client:
        return client.projects.get("triage").model(1).card()


def test_a_card_has_tables_of_the_evaluation_in_the_names_of_the_classes(hub: ScriptedHub) -> None:
    named = TABLE.model_copy(update={"labels": (Label(name="well"), Label(name="ill"))})
    model = signed_model(problem=problem_of(named), metrics={"auroc": 0.75})
    curves = {
        "examples": 6, "sites": 2, "confusion": [[3, 1], [0, 2]],
        "by_class": {"1": {"sensitivity": 1.0, "auroc": 0.75}, "0": {"sensitivity": None}},
        "calibration": [{"from": 0.0, "to": 0.0667, "examples": 4, "predicted": 0.05, "observed": 0.25}],
    }  # fmt: skip
    run = run_view("completed", job=JOB | {"evaluate": {"metrics": ["auroc"], "classes": 2}})
    answering(hub, model, (200, run))
    rounds = [{"round": model.record.lineage.round, "metrics": {}, "curves": curves}, {"round": 99, "metrics": {}}]
    hub.answer("GET", f"{PROJECT}/runs/{model.record.lineage.run}/metrics", (200, {"rounds": rounds}))
    card = card_at(hub)
    for line in (
        "| auroc | 0.75 |",
        "Of 6 test examples of 2 sites together.",
        "| class | sensitivity | auroc |",
        "| 1 (ill) | 1.0000 | 0.7500 |",
        "| 0 (well) |  |  |",
        "| 0 (well) | 3 | 1 |",
        "| 0.00 to 0.07 | 4 | 0.050 | 0.250 |",
    ):
        assert line in card


def test_a_card_tells_data_metrics_privacy_and_the_whole_job(hub: ScriptedHub) -> None:
    model = signed_model(problem=problem_of(TABLE), metrics={"loss": 0.25, "accuracy": 0.5})
    run = run_view("completed", privacy="The hub sees sums.", reason="stopped after round 2 of 3: enough")
    answering(hub, model, (200, run))
    card = card_at(hub)
    assert card.startswith("# triage, version 1\n")
    for line in (
        "| age | number | years | 0 to 120 |",
        r"| sex\|\* | category |  | f, m |",
        "| loss | 0.25 |",
        "| sites | 1: north |",
        f"| SHA-256 | {model.record.digest} |",
        "The hub sees sums.",
        "stopped after round 2 of 3: enough.",
    ):
        assert line in card
    assert card.count("*To fill in: ") == 4
    training = card.split("## Training")[1].split("## Use")[0]
    told = yaml.safe_load("\n".join(line for line in training.splitlines() if line.startswith("    ")))
    assert told == {name: JOB[name] for name in ("rounds", "model")}  # the rest is as by default


FOUND = [
    {"kind": "number", "name": "age", "centre": 61.25, "scale": 12.5, "fill": 61.25, "indicator": True, "log": False},
    {"kind": "number", "name": "dose", "centre": 4.5, "scale": 2.0, "fill": 4.5, "indicator": False, "log": True},
    {"kind": "date", "name": "seen", "centre": 20454.2, "scale": 30.0, "fill": 20454.2, "indicator": False},
    {"kind": "number", "name": "bmi", "centre": 10.0, "scale": 40.0, "fill": 25.0, "indicator": False, "log": False},
    {"kind": "category", "name": "ward", "form": "onehot", "values": ["a"], "missing": "own", "unknown": "zeros"},
    {"kind": "text", "name": "note"},
]
RULES = [
    {"name": "age", "kind": "number"}, {"name": "dose", "kind": "number", "scale": "robust", "log": True},
    {"name": "seen", "kind": "date"}, {"name": "bmi", "kind": "number", "scale": "minmax"},
    {"name": "ward", "kind": "category", "values": ["a", "b|"], "rare": 10}, {"name": "note", "kind": "text"},
]  # fmt: skip


def test_a_card_describes_the_data_by_what_all_sites_rows_together_were_found_to_be(hub: ScriptedHub) -> None:
    features = [{key: rule[key] for key in ("name", "kind", "values") if key in rule} for rule in RULES]
    schema = TabularSchema.model_validate({"features": features, "target": "ill", "classes": 2})
    made = problem_of(schema) | {"preparation": {"version": 1, "columns": FOUND}}
    made["model"] = {"dtype": "float32", "name": "logistic", "state": [], "buffers": {}}  # as registries sort them
    model = signed_model(problem=made, metrics={"auroc": 0.75, "auroc_min": 0.7, "train_loss": 0.5})
    run = run_view("completed", job=JOB | {"prepare": {"columns": RULES}})
    answering(hub, model, (200, run))
    sites = {"south": {"auroc": 0.7, "train_loss": 0.4}, "north": {"auroc": 0.8}, "west": {}}
    rounds = [{"round": model.record.lineage.round, "metrics": {}, "sites": sites}]
    hub.answer("GET", f"{PROJECT}/runs/{model.record.lineage.run}/metrics", (200, {"rounds": rounds}))
    card = card_at(hub)
    for line in (
        "| column | kind | unit | values | over all sites |",
        "| age | number |  |  | mean 61.25, standard deviation 12.5; some cells are missing |",
        "| dose | number |  |  | median of the logarithm 4.5, quartiles 2 apart |",
        "| seen | date |  |  | mean 2026-01-01, standard deviation 30 days |",
        "| bmi | number |  |  |  |",
        r"| ward | category |  | a, b\| | rare: b\|; some cells are missing |",
        "| note | text |  |  | not seen by the model |",
        "| model | logistic, dtype: float32 |",
        "| strategy | weighted mean |",
        "| site | auroc |",
        "| north | 0.8000 |",
        "| west |  |",
    ):
        assert line in card, line
    hub.answer("GET", f"{PROJECT}/runs/{model.record.lineage.run}/metrics", (200, {"rounds": []}))
    assert "By site" not in card_at(hub)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (ArraySchema(shape=(3, 8, 8), classes=10), "Arrays of shape [3, 8, 8] (classification, 10 classes)."),
        (OpenSchema(), "The project declares no form of its data"),
        (
            TabularSchema(features=tuple(Column(name=f"c{i}") for i in range(300)), target="y", task="regression"),
            "100 more",
        ),
        (
            TabularSchema(
                features=(Column(name="c"),), target="y", classes=2, labels=(Label(name="no"), Label(name="*"))
            ),
            "which the model tells (classification, 2 classes: no, \\*).",
        ),
        (TABLE.model_copy(update={"weight": "w|"}), r"counts a row as much as its column w\| says."),
    ],
)
def test_a_card_of_other_data_and_of_a_run_that_is_gone(hub: ScriptedHub, schema: DataSchema, words: str) -> None:
    answering(hub, signed_model(problem=problem_of(schema)), (404, error("not-found")))
    card = card_at(hub)
    assert words in card
    assert "## Training" not in card
    assert "None were taken." in card


def test_a_run_that_may_not_be_seen_is_no_run_that_is_gone(hub: ScriptedHub) -> None:
    answering(hub, signed_model(), (403, error("forbidden")))
    with pytest.raises(HanseError) as caught:
        card_at(hub)
    assert caught.value.code is ErrorCode.FORBIDDEN


def test_the_command_writes_a_card_and_never_over_one(
    hub: ScriptedHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answering(hub, signed_model(problem=problem_of(TABLE)), (200, run_view()))
    monkeypatch.setenv("HANSE_URL", hub.url)
    monkeypatch.setenv("HANSE_API_KEY", "hanse_abc_secret")

    def command(*output: Path) -> int:
        monkeypatch.setattr(sys, "argv", ["hanse", "model", "card", "triage", "1", *map(str, output)])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0)

    path = tmp_path / "card.md"
    assert command() == 0
    printed = capsys.readouterr().out
    assert command(path) == 0
    assert path.read_text() == printed
    path.write_text("filled in")
    assert command(path) == 5
    assert path.read_text() == "filled in"
    assert command(tmp_path / "absent" / "card.md") == 2
