"""A file that somebody names wrongly on the datapod's command line is told in one line that names it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from hanse_datapod.cli import main
from hanse_datapod.process.participant import read_policy
from hanse_datapod.worker.pool.choice import read_pools
from hanse_fabric.errors import HanseError

BAD: dict[str, bytes | None] = {
    "missing": None,
    "not YAML": b"rounds: [",
    "not text": b"rounds: \xff\xfe",
    "no date": b"rounds: 2026-99-99",
    "deep": b"[" * 5_000,
    "no mapping": b"- 1\n",
}


def bad(folder: Path, kind: str) -> Path:
    path = folder / f"{kind} file"
    content = BAD.get(kind)
    if kind == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    return path


@pytest.fixture
def good(tmp_path: Path) -> dict[str, str]:
    y = np.arange(30) % 3
    np.savez(tmp_path / "data.npz", x=np.zeros((30, 4), np.float32), y=y)
    job = {"rounds": 1, "model": {"name": "logistic"}}
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    (tmp_path / "study.yaml").write_text(
        json.dumps({"workflow": "association_study", "study": {"test": "linear"}, "participants": {"minimum": 3}})
    )
    return {name: str(tmp_path / name) for name in ("job.yaml", "study.yaml", "data.npz")}


def told(arguments: list[str], path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) != 0
    said = capsys.readouterr().err
    first, _, hint = said.partition("\n")
    assert first.startswith("error: ")
    assert str(path) in first
    assert hint.count("\n") <= 1  # what to do, in a line of its own
    assert len(said) < 1_000


@pytest.mark.parametrize("kind", [*BAD, "folder"])
@pytest.mark.parametrize("command", ["rehearse", "evaluate"])
def test_a_job_file_that_is_none_is_named(
    command: str, kind: str, tmp_path: Path, good: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    path, data = bad(tmp_path, kind), good["data.npz"]
    given = {
        "rehearse": ["rehearse", str(path), "--data", data, "--test", data],
        "evaluate": ["evaluate", data, "--job", str(path), "--test", data],
    }
    told(given[command], path, capsys)


@pytest.mark.parametrize("kind", [*BAD, "folder"])
@pytest.mark.parametrize("option", ["--schema", "--data", "--test", "--also", "--code", "--output"])
def test_another_file_that_is_none_is_named(
    option: str, kind: str, tmp_path: Path, good: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    job, options = (
        {"rounds": 1, "model": {"name": "logistic"}},
        {"--data": good["data.npz"], "--test": good["data.npz"]},
    )
    if option == "--code":
        job |= {"code": {"name": "ours", "digest": "a" * 64}, "model": {}}
    if option == "--output" and kind != "folder":
        return  # what was there is written over
    Path(good["job.yaml"]).write_text(json.dumps(job))
    path = bad(tmp_path, kind)
    arguments = [
        "rehearse",
        good["job.yaml"],
        *(word for pair in (options | {option: str(path)}).items() for word in pair),
    ]
    told(arguments, path, capsys)


@pytest.mark.parametrize("kind", [*BAD, "folder"])
def test_a_policy_that_is_none_is_named(
    kind: str, tmp_path: Path, good: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = bad(tmp_path, kind)
    told(["rehearse", good["study.yaml"], "--data", good["data.npz"], "--policy", str(path)], path, capsys)


@pytest.mark.parametrize("kind", ["missing", "folder", "not text"])
def test_a_file_of_homes_that_is_none_is_named(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = bad(tmp_path, kind)
    told(["run", "--homes-file", str(path)], path, capsys)


@pytest.mark.parametrize("kind", [*BAD, "folder"])
def test_a_file_of_pools_that_is_none_is_named(kind: str, tmp_path: Path) -> None:
    path = bad(tmp_path, kind)
    with pytest.raises(HanseError, match=re.escape(str(path))):
        read_pools(path)


@pytest.mark.parametrize("kind", ["missing", "folder"])
def test_site_code_that_is_no_file_is_named(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "ours.py"
    if kind == "folder":
        (path / "one.py").mkdir(parents=True)
    with pytest.raises(HanseError) as refused:
        read_policy(None, path)
    assert str(path) in refused.value.whole
