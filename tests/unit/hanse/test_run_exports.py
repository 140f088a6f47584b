"""Runs in MLflow, TensorBoard and Weights & Biases: the real packages, on this machine, without a network.

They take seconds to load, so tests load them where they run, and not where they are collected."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web

import hanse
from deploy.charts import ROOT
from deploy.pages import blocks_of
from hanse.cli import main
from hanse.exports.exported import ExportedRun, Point
from hanse.hub import Run
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.models import ModelVersion
from hanse_schemas.http.models import ModelView
from unit.hanse.scripted_hub import NOON, ScriptedHub, as_json, project_view, run_view
from unit.hanse.test_light_import import loaded_by
from unit.learning_site.test_portable_models import kept
from unit.learning_site.test_prepared_onnx import PREPARATION, ROWS, SCHEMA

PROJECT, RUN = "/v1/projects/triage", "run000000001"
JOB = {
    "rounds": 3, "name": "slow", "tags": ["night", "v1"], "model": {"name": "mlp", "hidden": [4]},
    "train": {"optimizer": {"name": "sgd", "lr": 0.1}},
}  # fmt: skip
ROUNDS = [
    {
        "round": at, "at": NOON, "metrics": {"loss": 0.9 / at, "auroc": 0.7 + at / 100},
        "sites": {"north": {"loss": 0.8 / at}}, "bytes": {"down": 10, "up": 20},
    }
    for at in (1, 2, 3)
]  # fmt: skip


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store of MLflow in SQLite has models in the folder where one works."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def finished(hub: ScriptedHub, tmp_path: Path) -> Iterator[Run]:
    """A completed run with its best version, whose raw columns are prepared."""
    file, _ = kept(tmp_path, {"name": "mlp", "hidden": [4]}, SCHEMA, preparation=PREPARATION)
    record = ModelVersion.decode(file.with_name(file.name + ".json").read_bytes())
    view = as_json(ModelView.of(record))

    async def content(request: web.Request) -> web.Response:
        return web.Response(body=file.read_bytes())

    told = run_view("completed", job=JOB, name="slow", tags=JOB["tags"], best_version=1, model_version=1, round=3)
    hub.answer("GET", PROJECT, (200, project_view()))
    hub.answer("GET", f"{PROJECT}/runs/{RUN}", (200, told))
    hub.answer("GET", f"{PROJECT}/runs/{record.lineage.run}", (200, told))
    hub.answer("GET", f"{PROJECT}/runs/{RUN}/metrics", (200, {"rounds": ROUNDS}))
    hub.answer("GET", f"{PROJECT}/models/1", (200, view))
    for project in {"triage", record.project}:
        path = f"/v1/projects/{project}/models/{record.version}/download"
        hub.answer("GET", path, (200, {"url": f"{hub.url}/b/x", "version": view}))
        hub.answer("GET", f"/v1/projects/{project}/runs/{record.lineage.run}", (200, told))
    hub.answer("GET", "/b/x", content)
    with hanse.connect(hub.url, api_key="hanse_abc_secret") as client:
        yield client.projects.get("triage").get_run(RUN)


@pytest.fixture(scope="module")
def fresh_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of MLflow without a run: making its tables takes a second of a core."""
    from mlflow.tracking import MlflowClient

    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    assert len(MlflowClient(tracking_uri=f"sqlite:///{path}").search_experiments()) == 1
    return path


@pytest.fixture
def store(fresh_store: Path, tmp_path: Path) -> str:
    """The address of such a store of the test's own."""
    return f"sqlite:///{shutil.copy(fresh_store, tmp_path)}"


def test_a_run_and_its_best_model_are_in_mlflow_and_predict_there_as_here(finished: Run, store: str) -> None:
    import mlflow
    from mlflow.tracking import MlflowClient

    uri = store
    before = (mlflow.get_tracking_uri(), mlflow.active_run())
    said = finished.export("mlflow", into=uri, model="best", register="triage", sites=True)
    assert "models:/triage/1" in said
    assert (mlflow.get_tracking_uri(), mlflow.active_run()) == before
    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    experiment = client.get_experiment_by_name("triage")
    assert experiment is not None
    [kept_run] = client.search_runs([experiment.experiment_id])
    assert (kept_run.info.run_name, kept_run.info.status) == ("slow", "FINISHED")
    assert kept_run.data.params["train.optimizer.lr"] == "0.1"
    assert {"hanse.run": RUN, "hanse.tags": "night, v1"}.items() <= kept_run.data.tags.items()
    assert [(each.step, each.value) for each in client.get_metric_history(kept_run.info.run_id, "loss")] == [
        (at, 0.9 / at) for at in (1, 2, 3)
    ]
    assert kept_run.data.metrics["loss/north"] == pytest.approx(0.8 / 3)
    assert kept_run.data.metrics["bytes_up"] == 20
    version = client.get_model_version("triage", "1")
    assert version.run_id == kept_run.info.run_id
    assert "Intended use" in str(version.description)
    mlflow.set_tracking_uri(uri)
    try:
        page = next(block for block in blocks_of(ROOT / "docs/runs.md") if "mlflow.pyfunc" in block.text)
        around: dict[str, Any] = {"mlflow": mlflow, "table": ROWS}
        exec(page.text, around)  # noqa: S102 - the page is ours
        loaded = around["loaded"]
        expected = finished.best.load()
        np.testing.assert_array_equal(loaded.predict(ROWS), expected.predict(ROWS))
        shares = loaded.predict(ROWS, params={"probabilities": True})
        np.testing.assert_array_equal(shares, expected.predict_proba(ROWS))
        assert loaded.get_raw_model().state_dict().keys() == expected.module.state_dict().keys()
        whole = ROWS.assign(age=[40, 50, 60, 70])  # a column of whole numbers is a column of numbers
        np.testing.assert_array_equal(loaded.predict(whole), expected.predict(whole))
    finally:
        mlflow.set_tracking_uri("")


def test_a_run_goes_to_mlflow_once_and_a_broken_export_is_made_anew(
    finished: Run, tmp_path: Path, store: str
) -> None:  # fmt: skip
    from mlflow.tracking import MlflowClient

    uri = store
    client = MlflowClient(tracking_uri=uri)
    broken = client.create_run(client.create_experiment("triage"), tags={"hanse.run": RUN})
    finished.export("mlflow", into=uri)
    with pytest.raises(HanseError, match="MLflow has it") as raised:
        finished.export("mlflow", into=uri)
    assert raised.value.code is ErrorCode.CONFLICT
    found = client.search_runs([broken.info.experiment_id])
    assert [each.info.run_id == broken.info.run_id for each in found] == [False]
    finished.export("mlflow", into=uri, experiment="another")
    with pytest.raises(HanseError, match="MLflow refuses"):
        finished.export("mlflow", into="nowhere://x")
    (tmp_path / "letter.db").write_text("no database")
    with pytest.raises(HanseError, match=r"letter\.db: its database refuses: file is not a database"):
        finished.export("mlflow", into=f"sqlite:///{tmp_path}/letter.db")


def test_event_files_are_read_by_tensorboard(finished: Run, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert "tensorboard --logdir" in finished.export("tensorboard", into=str(tmp_path / "events"))
    found = EventAccumulator(str(tmp_path / "events" / RUN))
    found.Reload()
    assert set(found.Tags()["scalars"]) == {"auroc", "loss", "bytes_down", "bytes_up"}
    assert [(each.step, each.value) for each in found.Scalars("auroc")] == [
        (at, pytest.approx(0.7 + at / 100, abs=1e-6)) for at in (1, 2, 3)
    ]
    assert found.PluginTagToContent("hparams")
    [project] = found.Tensors("hanse.project")
    assert b"triage" in project.tensor_proto.SerializeToString()
    with pytest.raises(HanseError, match="there already"):
        finished.export("tensorboard", into=str(tmp_path / "events"))
    (tmp_path / "file").touch()
    with pytest.raises(HanseError, match="cannot be written"):
        finished.export("tensorboard", into=str(tmp_path / "file"))


def test_an_offline_run_of_weights_and_biases_has_it_all_and_nothing_of_this_machine(
    finished: Run, tmp_path: Path
) -> None:
    said = finished.export("wandb", into=str(tmp_path / "kept"), model="best")
    [folder] = (tmp_path / "kept" / "wandb").glob(f"offline-run-*-{RUN}")
    assert f"wandb sync {folder}" in said
    records = list(wandb_records(folder / f"run-{RUN}.wandb"))
    [begun] = [each.run for each in records if each.HasField("run")][:1]
    assert (begun.project, begun.display_name, list(begun.tags)) == ("triage", "slow", ["night", "v1"])
    config = {each.key: each.value_json for each in begun.config.update}
    assert config["train.optimizer.lr"] == "0.1"
    told = [{(item.key or ".".join(item.nested_key)): item.value_json for item in each.history.item}
            for each in records if each.HasField("history")]  # fmt: skip
    assert [(item["round"], float(item["loss"])) for item in told] == [(str(at), 0.9 / at) for at in (1, 2, 3)]
    [artifact] = [each.artifact for each in records if each.HasField("artifact")]
    assert {entry.path for entry in artifact.manifest.contents} == {"model.safetensors", "model.safetensors.json"}
    assert not any(each.HasField("stats") for each in records)
    assert begun.host == "hanse"
    assert not list(folder.rglob("requirements.txt"))
    with pytest.raises(HanseError, match="there already"):
        finished.export("wandb", into=str(tmp_path / "kept"))


@pytest.mark.parametrize("to", ["tensorboard", "wandb"])
def test_what_a_broken_export_has_left_is_made_anew(
    finished: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    points, into = ExportedRun.points, tmp_path / "into"

    def some(exported: ExportedRun) -> Iterator[Point]:
        yield next(points(exported))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ExportedRun, "points", some)
    with pytest.raises((HanseError, OSError), match=r"No space left|cannot be written"):
        finished.export(to, into=str(into))
    assert [path.name for path in into.iterdir()] == [f".{RUN}.unfinished"]  # of which no tracker knows
    monkeypatch.undo()
    finished.export(to, into=str(into))
    [made] = into.iterdir()
    [events] = made.glob("**/*.wandb" if to == "wandb" else "**/events.*")
    assert events.stat().st_size > 500


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"to": "neptune"}, "one of mlflow, tensorboard, wandb"),
        ({"to": "mlflow", "model": "last"}, "one of best, newest, none"),
        ({"to": "mlflow", "register": "triage"}, "best or newest, where a version is to be registered"),
        ({"to": "wandb", "register": "triage"}, "wandb has no registry"),
        ({"to": "tensorboard", "model": "best"}, "TensorBoard keeps no models"),
        ({"to": "tensorboard", "experiment": "x"}, "TensorBoard has folders"),
    ],
)
def test_what_does_not_fit_together_is_refused_before_anything_is_asked(
    hub: ScriptedHub, finished: Run, given: dict[str, Any], message: str
) -> None:
    hub.seen = []
    with pytest.raises(HanseError, match=message):
        finished.export(**given)
    assert not hub.seen


def test_a_run_that_goes_on_stays(hub: ScriptedHub, finished: Run) -> None:
    hub.answer("GET", f"{PROJECT}/runs/{RUN}", (200, run_view("running")))
    with pytest.raises(HanseError, match="is running, expected one that has ended"):
        finished.export("tensorboard")


def test_the_command_says_where_the_run_is(
    hub: ScriptedHub, finished: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HANSE_URL", hub.url)
    monkeypatch.setattr(sys, "argv", ["hanse", "run", "export", "triage", RUN, "--to", "tensorboard"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert f"Run {RUN} is in runs/{RUN}" in capsys.readouterr().out
    assert list(Path("runs", RUN).glob("events.out.*"))
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--into", "again", "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert json.loads(capsys.readouterr().out) == {
        "run": RUN,
        "to": "tensorboard",
        "said": f"again/{RUN}: tensorboard --logdir again",
    }


def test_a_tracker_that_is_not_installed_is_named_with_what_to_install() -> None:
    program = (
        "import importlib.util as u; found = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'mlflow' else found(name, *more)\n"
        "from hanse.exports.wanted import Wanted, check_wanted; check_wanted(Wanted('mlflow'))"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "mlflow: not installed beside the SDK" in told.stderr


def test_trackers_are_loaded_when_a_run_goes_there_alone() -> None:
    loaded = loaded_by("import hanse.cli.app, hanse.exports; hanse.cli.app.build()")
    assert not loaded & {"mlflow", "tensorboard", "wandb", "torch", "numpy"}
    assert "torch" not in loaded_by("import hanse.exports.to_tensorboard")


def wandb_records(path: Path) -> Iterator[Any]:
    """The records of an offline run: a log of LevelDB's form, in blocks of 32 KiB, after a header of 7 bytes."""
    from wandb.proto import wandb_internal_pb2

    records: Any = wandb_internal_pb2
    content, at, parts = path.read_bytes(), 7, b""
    while at + 7 <= len(content):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", content, at)
        parts += content[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield records.Record.FromString(parts)
            parts = b""
