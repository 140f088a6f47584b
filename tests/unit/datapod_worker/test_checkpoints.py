"""A training that was cut off goes on from the end of an epoch, to the bits of one that was not; never where it draws
noise, on other data, or from a damaged file."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hanse_datapod.home.folders import TaskFolders
from hanse_datapod.worker.port import checkpoint_file
from hanse_datapod.worker.work import checkpoint
from hanse_datapod.worker.work.checkpoint import TaskCheckpoint
from hanse_fabric.errors import ErrorCode, HanseError
from unit.datapod.site_actors import task
from unit.datapod_worker.site_rounds import Site

EPOCHS = 4
NORMALIZED = {"name": "mlp", "hidden": [6], "batch_norm": True}
MOVING = {"name": "sgd", "lr": 0.05, "momentum": 0.9}
CASES: dict[str, dict[str, Any]] = {
    "plain": {"train": {}},
    # Of 40 examples the last batch is one alone, which batch norm cannot take.
    "batch norm, and a batch that is passed over": {"model": NORMALIZED, "train": {"batch_size": 13}},
    "momentum over rounds, and dropout": {
        "model": {"name": "mlp", "hidden": [6], "dropout": 0.3},
        "train": {"optimizer": MOVING | {"across_rounds": True}},
    },
    "adam and a falling rate": {
        "train": {"optimizer": {"name": "adam", "lr": 0.01}, "schedule": {"factor": 0.5, "every_rounds": 1}}
    },
    "steps that end within an epoch": {"train": {"epochs": None, "steps": 18}},
    "fedprox": {"train": {"algorithm": {"name": "fedprox", "mu": 0.5}, "optimizer": MOVING}},
    "feddyn": {"train": {"algorithm": {"name": "feddyn", "alpha": 0.1}}},
    "moon": {"train": {"algorithm": {"name": "moon", "mu": 1.0}}},
}
ANEW = {
    "ditto": {"train": {"algorithm": {"name": "ditto"}}},
    "scaffold": {"train": {"algorithm": {"name": "scaffold"}}},
}


class Killed(BaseException):
    """The process is gone."""


class Writes:
    """Counts checkpoints; the process is killed right after one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.killed_after = 0, 0
        monkeypatch.setattr(checkpoint, "EVERY_S", 0.0)
        write = TaskCheckpoint.write

        def counted(own: TaskCheckpoint, arrays: Any) -> None:
            write(own, arrays)
            self.count += 1
            if self.count == self.killed_after:
                raise Killed

        monkeypatch.setattr(TaskCheckpoint, "write", counted)

    def begin(self, killed_after: int = 0) -> None:
        self.count, self.killed_after = 0, killed_after


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> Writes:
    return Writes(monkeypatch)


def site_in(folder: Path, config: dict[str, Any], fingerprint: str | None = "these data") -> Site:
    train = {"epochs": EPOCHS, "batch_size": 8, "optimizer": {"name": "sgd", "lr": 0.1}} | config["train"]
    train = {name: value for name, value in train.items() if value is not None}
    site = Site(folder, **(config | {"train": train}))
    site.fingerprint = fingerprint
    return site


def made(site: Site) -> tuple[Any, ...]:
    """All that the second round leaves."""
    outcome = site.train(2, trained=1)
    kept = (
        {name: array.tobytes() for name, array in site.kept(2).items()} if "local-2.safetensors" in site.rounds else {}
    )
    return outcome.metrics, outcome.info, site.sent, kept


def after_one_round(folder: Path, config: dict[str, Any]) -> Path:
    """A site that has done a round: algorithms begin their second with what they keep."""
    site = site_in(folder, config, fingerprint=None).begin()
    site.train(1, trained=0)
    site.count()
    return folder


def again_in(folder: Path, begun: Path, config: dict[str, Any], **given: Any) -> Site:
    shutil.copytree(begun, folder)
    site = site_in(folder, config, **given)
    site.control = folder / "control" if (folder / "control").exists() else None
    return site


@pytest.mark.parametrize("config", CASES.values(), ids=CASES)
def test_a_training_that_is_cut_off_at_an_epochs_end_goes_on_to_the_same_bits(
    config: dict[str, Any], tmp_path: Path, writes: Writes
) -> None:
    begun = after_one_round(tmp_path / "begun", config)
    whole = made(again_in(tmp_path / "whole", begun, config, fingerprint=None))
    assert writes.count == 0, "without a place for them there are none"
    ends = EPOCHS - 1
    for killed_after in range(1, ends + 1):
        site = again_in(tmp_path / f"killed-{killed_after}", begun, config)
        writes.begin(killed_after)
        with pytest.raises(Killed):
            site.train(2, trained=1)
        held = checkpoint_file(site.folder / "update")
        assert held.stat().st_mode & 0o077 == 0, "it is the site's alone"
        writes.begin()
        assert made(site) == whole
        assert writes.count == ends - killed_after, "it went on, and did not begin anew"
        assert not held.exists(), "it is done"


@pytest.mark.parametrize("config", ANEW.values(), ids=ANEW)
def test_what_keeps_more_from_step_to_step_begins_anew(config: dict[str, Any], tmp_path: Path, writes: Writes) -> None:
    begun = after_one_round(tmp_path / "begun", config)
    made(again_in(tmp_path / "again", begun, config))
    assert writes.count == 0


def test_training_that_draws_noise_for_each_example_leaves_none(tmp_path: Path, writes: Writes) -> None:
    privacy = {"mechanism": "dp_sgd", "clip": 1.0, "scale": 1.0, "steps": 20, "batch": 8, "rate": 0.2}
    site = site_in(tmp_path / "site", {"train": {}, "privacy": privacy}).begin()
    site.train(1, trained=0)
    assert writes.count == 0


def test_other_data_a_damaged_file_and_a_full_disk_cost_the_checkpoint_alone(
    tmp_path: Path, writes: Writes, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = CASES["plain"]
    begun = after_one_round(tmp_path / "begun", config)
    whole = made(again_in(tmp_path / "whole", begun, config, fingerprint=None))

    def killed(name: str) -> Site:
        site = again_in(tmp_path / name, begun, config)
        writes.begin(1)
        with pytest.raises(Killed):
            site.train(2, trained=1)
        writes.begin()
        return site

    other = killed("other")
    other.fingerprint = "data that were changed meanwhile"
    assert (made(other), writes.count) == (whole, EPOCHS - 1)

    damaged = killed("damaged")
    held = checkpoint_file(damaged.folder / "update")
    held.write_bytes(held.read_bytes()[:-7])
    assert (made(damaged), writes.count) == (whole, EPOCHS - 1)

    def full(*_: object) -> None:
        raise HanseError(ErrorCode.NO_SPACE, "the disk is full")

    writes.begin()
    monkeypatch.setattr(checkpoint, "write_tensors", full)
    assert made(again_in(tmp_path / "full", begun, config)) == whole


def test_short_rounds_write_none(tmp_path: Path) -> None:
    config = CASES["plain"]
    begun = after_one_round(tmp_path / "begun", config)
    site = again_in(tmp_path / "site", begun, config)
    made(site)
    assert np.isclose(checkpoint.EVERY_S, 60)
    assert not checkpoint_file(site.folder / "update").exists()


def test_a_home_keeps_the_checkpoint_of_the_task_that_comes_again_and_of_no_other(tmp_path: Path) -> None:
    crashed, folders = TaskFolders(tmp_path), TaskFolders(tmp_path)
    first, second = task(step="r1-train"), task(step="r2-train")
    crashed.prepare(first)
    held = checkpoint_file(crashed.worker_output(first))
    held.write_bytes(b"an epoch")
    folders.prepare(first)
    assert held.exists(), "it comes again, and goes on"
    folders.drop_plain(first)
    folders.prepare(second)
    assert not held.exists()
