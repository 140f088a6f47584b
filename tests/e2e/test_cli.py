"""The command line against a hub that `hanse up` runs: the whole way of an owner and a site's administrator."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil
import pytest

from ended_hubs import check_end, gone
from forked_commands import Commands

HANSE = (sys.executable, "-m", "hanse")
SCHEMA = """\
kind: array
shape: [4]
task: classification
classes: 3
"""
JOB = """\
rounds: 1
model: {name: mlp, hidden: [8]}
participants: {minimum: 2, patience: 1}
"""


@dataclass(frozen=True)
class Up:
    """A running `hanse up`, and the folder that commands are typed in."""

    process: subprocess.Popen[str]
    folder: Path
    url: str
    commands: Commands

    def run(self, *arguments: str, status: int = 0, within: float = 60) -> Any:
        """The JSON that a command answers; of an error, that on standard error."""
        done = self.commands.run(["hanse", *arguments, "--json"], cwd=self.folder, timeout=within)
        assert done.returncode == status, done.stderr
        return json.loads(done.stdout.splitlines()[-1] if status == 0 else done.stderr)

    def pids(self) -> list[int]:
        listing = json.loads((self.folder / ".hanse/hub/processes.json").read_text())
        return list(listing.values())


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HANSE_")}
    return subprocess.Popen(
        [*HANSE, "up", "--json", *arguments], cwd=folder, stdout=subprocess.PIPE, text=True, env=environment
    )


def first_line(stream: IO[str] | None) -> Any:
    assert stream is not None
    return json.loads(stream.readline())


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, commands: Commands) -> Iterator[Up]:
    folder = tmp_path_factory.mktemp("up")
    process = start(folder)
    try:
        yield Up(process, folder, first_line(process.stdout)["url"], commands)
        check_end(process, folder, signal.SIGKILL)  # one that has served leaves nothing running either
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def token(up: Up) -> str:
    """That a site has joined the project with; its process does not run."""
    (up.folder / "schema.yaml").write_text(SCHEMA)
    assert up.run("project", "create", "triage", "--schema", "schema.yaml") == {"project": "triage"}
    invited = up.run("project", "invite", "triage", "north")
    assert invited["url"] == up.url
    joined = up.run("site", "join", up.url, invited["token"], "--home", "north")
    assert (joined["project"], joined["participant"]) == ("triage", "north")
    return str(invited["token"])


def test_an_owner_creates_a_project_and_a_site_joins_it_once(up: Up, token: str) -> None:
    assert up.run("project", "create", "triage", "--schema", "schema.yaml", status=5)["error"]["code"] == "conflict"
    again = up.run("site", "join", up.url, token, "--home", "other", status=5)
    assert again["error"]["code"] == "conflict"
    assert [site["participant"] for site in up.run("project", "participants", "triage")].count("north") == 1


def test_a_run_that_nobody_comes_to_ends_with_the_quorums_status(up: Up, token: str) -> None:
    (up.folder / "job.yaml").write_text(JOB)
    assert up.run("run", "check", "triage", "job.yaml")["warnings"]
    error = up.run("run", "submit", "triage", "job.yaml", "--watch", status=9)["error"]
    assert error["code"] == "quorum"
    (run,) = up.run("run", "list", "triage")
    assert run["state"] == "failed"
    # Its owner removes it: on the real bus, whose permissions are the services' own.
    assert up.run("run", "remove", "triage", "--older-than", "1")["runs"] == []
    assert up.run("run", "remove", "triage", "--older-than", "0") == {"runs": [run["run"]], "removed": False}
    assert up.run("run", "remove", "triage", run["run"]) == {"runs": [run["run"]], "removed": True}
    assert up.run("run", "list", "triage") == []
    up.run("run", "remove", "triage", run["run"], status=4)


@pytest.mark.usefixtures("token")
def test_doctor_finds_the_hub_of_the_folder_and_a_sites_way_to_it(up: Up) -> None:
    invited = up.run("project", "invite", "triage", "south")["token"]
    up.run("site", "join", up.url, invited, "--home", "south")
    for arguments in ((), ("--home", "south")):
        found = {one["check"]: one["well"] for one in up.run("doctor", *arguments)}
        assert all(found.values()), found
        assert {"hub", "release", "clock", "bus", "api key", "hub's secrets"} <= set(found)

    left = up.run("site", "leave", "--home", "south", "--reason", "the study has ended")
    assert (left["project"], left["told"]) == ("triage", True)
    assert {"signing.pem", "bus.seed", "site.json"} <= set(left["removed"])
    assert up.run("site", "leave", "--home", "south")["removed"] == []
    (seen,) = (site for site in up.run("project", "participants", "triage") if site["participant"] == "south")
    assert seen["revoked"]
    assert seen["left_at"] is not None
    done = [entry["action"] for entry in up.run("project", "audit", "triage")]
    assert done[:2] == ["project.create", "participant.invite"]
    assert "participant.leave" in done


def test_a_second_hub_on_the_folder_is_refused_with_the_status_of_a_lock(up: Up) -> None:
    second = up.run("up", status=13)
    assert f"process {up.process.pid}" in second["error"]["message"]


@pytest.mark.parametrize("delay", [0.0, 0.3])
def test_ctrl_c_during_the_start_ends_it_and_leaves_nothing_running(tmp_path: Path, delay: float) -> None:
    process = start(tmp_path)
    listing = tmp_path / ".hanse/hub/processes.json"
    while not listing.exists() and process.poll() is None:
        time.sleep(0.001)
    time.sleep(delay)  # the moment is what is varied; any is good
    seen = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    _, alive = psutil.wait_procs(seen, timeout=30)
    assert all(gone(one.pid) for one in alive)
    assert not listing.exists()


def test_a_hub_is_tried_with_two_sites_that_leave_little_behind(up: Up) -> None:
    done = up.run("hub", "test", within=300)["done"]
    assert any("to the bit" in line for line in done)
    name = next(line.split()[1] for line in done if line.startswith("project "))
    assert all(one["revoked"] for one in up.run("project", "participants", name))
    assert {one["stage"] for one in up.run("model", "list", name)} == {"archived"}


def test_a_hub_is_not_tried_with_a_wrong_key(up: Up) -> None:
    (up.folder / "wrong.key").write_text("hanse_aaaaaaaaaaaa_" + "a" * 43)
    refused = up.run("hub", "test", "--url", up.url, "--key-file", "wrong.key", status=3)
    assert refused["error"]["code"] == "unauthenticated"
