"""Real datapods at sites where something is wrong: data missing, malformed, or of another schema; a full disk.

All of them share one run with a site where all is well: each says what is wrong, and the round stands without them.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from e2e.deployed import DeployedHub, completed
from e2e.sites_online import wait_online
from hanse.hub import Hub
from hanse_learning.digits import write_shares

SCHEMA = {"kind": "array", "shape": [64], "task": "classification", "classes": 10, "minimum": 0, "maximum": 1}
JOB = {
    "rounds": 1,
    "participants": {"minimum": 1, "quorum": 0.1, "deadline": 60, "retries": 0},
    "model": {"name": "logistic"},
    "train": {"epochs": 1},
}
EXPECTED = {
    "absent": ("not-found", ["there is no such file", "check the path"]),
    "garbled": ("invalid-input", ["train.npz"]),
    "narrow": ("schema-mismatch", ["train.npz", "[32]", "[64]", "correct the data"]),
    "full": ("no-space", ["free"]),
}


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A disk of 2 MiB: a tmpfs, which needs the rights to mount one."""
    folder = tmp_path_factory.mktemp("disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> None:
    with (folder / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            pass


def write_files(folder: Path) -> dict[str, Path]:
    """Each site's training file."""
    write_shares(folder, ["well"], seed=3)
    files = {name: folder / name / "train.npz" for name in ["well", *EXPECTED]}
    for path in files.values():
        path.parent.mkdir(exist_ok=True)
    good = np.load(files["well"])
    files["garbled"].write_bytes(files["well"].read_bytes()[:1000])
    np.savez(files["narrow"], x=good["x"][:, :32], y=good["y"])
    np.savez(files["full"], x=good["x"], y=good["y"])
    return files


@pytest.fixture(scope="module")
def answers(
    hub: DeployedHub, small_disk: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[str, str, str]]:
    """(outcome, code, reason) of the run's training task by site."""
    folder = tmp_path_factory.mktemp("sites")
    client: Hub
    with hub.client() as client:
        project = client.projects.create("clumsy", schema=SCHEMA)
        for name, path in write_files(folder / "data").items():
            home = small_disk / "home" if name == "full" else folder / name
            hub.start_datapod(project, name, home=home, data=path)
        wait_online(project, 1 + len(EXPECTED))
        fill(small_disk)
        run = completed(project.run(JOB))
        assert list(run.model.view.lineage.participants) == ["well"]
        told = [event.data for event in run.watch() if event.kind == "task-answered"]
    return {
        data["participant"]: (data["outcome"], data.get("code", ""), data.get("reason", ""))
        for data in told
        if data["step"] == "r1-train"
    }


def test_a_sound_site_answers_although_all_others_fail(answers: dict[str, tuple[str, str, str]]) -> None:
    assert answers["well"][0] == "done"
    assert answers.keys() == {"well", *EXPECTED}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_site_says_what_is_wrong_with_it(answers: dict[str, tuple[str, str, str]], name: str) -> None:
    code, words = EXPECTED[name]
    outcome, told, reason = answers[name]
    assert (outcome, told) == ("refused", code), reason
    for word in words:
        assert word in reason
