"""`hanse new` of a project: what its README tells to type works, on data that are made up, and hub and sites accept its
files."""

from __future__ import annotations

import hashlib
import json
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from pydantic import TypeAdapter
from typer.testing import CliRunner

from deploy.typed_commands import complaint
from hanse.cli.app import build
from hanse.new.project import project_kinds, write_project
from hanse_datapod.cli import main
from hanse_datapod.policy.site_policy import load_policy
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.tensors.file import read_tensors
from hanse_schemas.job import check_job
from hanse_schemas.prepare import completed_job
from hanse_schemas.schema import DataSchema

LEAST = {
    "tabular": {"auroc": 0.75}, "images": {"accuracy": 0.8}, "fine-tuning": {"accuracy": 0.8},
    "survival": {"c_index": 0.65},
}  # fmt: skip
"""Better than without training, by each kind's first rehearsal."""
SCHEMA: TypeAdapter[DataSchema] = TypeAdapter(DataSchema)


def typed(readme: str) -> list[list[str]]:
    """The words of each command that the README tells to type."""
    return [shlex.split(line) for line in re.findall(r"^ {4}(\S.*)$", readme, re.MULTILINE)]


@pytest.mark.parametrize("kind", project_kinds())
def test_a_new_project_is_tried_as_its_readme_says_and_its_files_are_accepted(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = CliRunner().invoke(build(), ["new", kind, "ward-5", "--into", str(tmp_path)])
    assert done.exit_code == 0, done.output
    folder = tmp_path / "ward-5"
    assert f"cd {folder} && python made_up.py" in done.output
    monkeypatch.chdir(folder)
    commands = typed(Path("README.md").read_text())
    told = []
    for words in commands:
        if words[:3] == ["hanse", "site", "rehearse"]:
            capsys.readouterr()
            assert main([*words[2:], "--json"]) == 0, capsys.readouterr().err
            told.append(json.loads(capsys.readouterr().out.splitlines()[-1]))
        elif words[0] == "python":
            monkeypatch.setattr(sys, "argv", words[1:])
            runpy.run_path(words[1], run_name="__main__")
        else:
            assert complaint(words) is None, words
    assert told, "a rehearsal at least"
    for metric, least in LEAST.get(kind, {}).items():
        for rehearsed in told:
            (metrics,) = rehearsed["tests"].values()
            found = metrics.get(metric, metrics.get("accuracy", 0.0))
            assert found > least, (kind, metric, metrics)

    schema = SCHEMA.validate_python(yaml.safe_load(Path("schema.yaml").read_text()))
    jobs = [path for path in Path().glob("*.yaml") if path.name not in ("schema.yaml", "policy.yaml")]
    policy = load_policy(Path("policy.yaml"))
    code = Path("site_code.py")
    digest = hashlib.sha256(code.read_bytes()).hexdigest() if code.exists() else None
    for path in jobs:
        job = completed_job(check_job(yaml.safe_load(path.read_text())), schema)
        assert job.secure_aggregation is not None, "nobody sees a single site's update"
        if job.code is not None:
            assert job.code.digest == digest
            policy.check_code(job.code.digest)
    assert (digest is None) == (kind == "study"), "sites of a study run no code of the project's"


def test_what_is_written_of_projects_is_clean(tmp_path: Path) -> None:
    folders = [write_project(kind, kind, tmp_path)[0].parent.name for kind in project_kinds()]
    plain = ("--isolated", "--line-length", "120")
    for words in (("check", *plain, "--select", "E,F,B,UP,I"), ("format", "--check", *plain)):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", words[0], *words[1:], *folders], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout


def test_the_hazards_of_the_survival_project_are_those_of_the_people_counted_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without columns that matter, the likeliest hazard of an interval is events by people at risk (Singer and Willett,
    1993); and who is censored counts from half of an interval on."""
    (tmp_path / "code").mkdir()
    write_project("survival", "ward", tmp_path / "code")
    code = runpy.run_path(str(tmp_path / "code" / "ward" / "site_code.py"))

    class Data:
        x = np.array([[0, 1], [0, 1], [0, 0], [0, 0], [0, 0]], np.float32)
        y = np.array([50, 150, 160, 140, 400], np.float32)

    config = {"model": {"until": [100, 200], "centre": [0], "scale": [1]}, "train": {"steps": 3000, "lr": 1.0}}
    _, at_risk, had = code["prepared"](Data, config)
    assert at_risk.tolist() == [[1, 0], [1, 1], [1, 1], [1, 0], [1, 1]]
    assert had.tolist() == [[1, 0], [0, 1], [0, 0], [0, 0], [0, 0]]
    model, people, told = code["train"](code["initialize"](config), Data, config)
    assert people == 5
    np.testing.assert_allclose(1 / (1 + np.exp(-model["hazards"])), [1 / 5, 1 / 3], atol=1e-3)
    expected = -(np.log(1 / 5) + 4 * np.log(4 / 5) + np.log(1 / 3) + 2 * np.log(2 / 3)) / 5
    assert told["loss"] == pytest.approx(expected, abs=1e-4)
    # Of pairs that can be compared: 50 before all others, 150 before 160 and 400.
    risk = np.array([3.0, 1.0, 2.0, 0.0, 1.0])
    assert code["concordance"](Data.y, Data.x[:, 1] > 0.5, risk) == pytest.approx((4 + 0 + 0.5) / 6)


@pytest.mark.parametrize(
    ("kind", "name", "code", "said"),
    [
        ("survivel", "mine", ErrorCode.INVALID_INPUT, "one of fine-tuning, images, study, survival, tabular"),
        ("tabular", "My_ward", ErrorCode.INVALID_INPUT, "lower-case letters, digits and inner hyphens"),
        ("tabular", "there", ErrorCode.CONFLICT, "there is there"),
    ],
)
def test_a_project_that_cannot_be_is_refused_before_anything_is_written(
    tmp_path: Path, kind: str, name: str, code: ErrorCode, said: str
) -> None:
    into = tmp_path / "into"
    (into / "there").mkdir(parents=True)
    with pytest.raises(HanseError) as caught:
        write_project(kind, name, into)
    assert (caught.value.code, said in caught.value.message) == (code, True)
    assert [path.name for path in into.iterdir()] == ["there"]


def test_the_model_of_a_survival_rehearsal_is_read_as_its_readme_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_project("survival", "ward", tmp_path)
    monkeypatch.chdir(tmp_path / "ward")
    runpy.run_path("made_up.py", run_name="__main__")
    words = next(words for words in typed(Path("README.md").read_text()) if "rehearse" in words)
    assert main(words[2:]) == 0
    weights = read_tensors(Path("survival.safetensors"))[1]["weights"]
    assert [weight > 0 for weight in weights] == [True, True, False], "as the made-up people were: treatment helps"
