"""Supervised processes and the hub's folder: restarts, reports, nothing left behind, one holder."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import psutil
import pytest

from hanse.embedded.processes import ChildSpec, Supervisor
from hanse.embedded.state import StateFolder
from hanse_fabric.durable import write_durably
from hanse_fabric.errors import ErrorCode, HanseError

SLEEPER = (sys.executable, "-c", "import time; time.sleep(600)")
STUBBORN = (
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)",
)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110 - another process's doing has no event
            await asyncio.sleep(0.02)


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.fixture
async def supervisor(tmp_path: Path) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(tmp_path / "hub")
    yield supervisor
    await supervisor.stop()


async def test_a_child_that_is_killed_is_started_again(supervisor: Supervisor) -> None:
    child = supervisor.start(ChildSpec("sleeper", SLEEPER))
    await child.wait_ready(30)
    first = child.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await until(lambda: child.pid not in (None, first))
    assert child.restarts == 1
    assert supervisor.pids() == {"sleeper": child.pid}


@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "killed"])
async def test_what_a_child_leaves_behind_is_removed_after_its_end(
    supervisor: Supervisor, tmp_path: Path, stopped: bool
) -> None:
    litter = tmp_path / "litter"
    code = f"import time; open({str(litter)!r}, 'x'); time.sleep(600)"  # a second start finds no file, or fails
    tidy = partial(litter.unlink, missing_ok=True)
    child = supervisor.start(ChildSpec("litters", (sys.executable, "-c", code), tidy=tidy))
    await until(litter.exists)
    if stopped:
        await supervisor.stop()
        assert not litter.exists()
    else:
        first = child.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await until(lambda: child.pid not in (None, first) and litter.exists())


async def test_running_processes_are_listed_in_a_file_until_they_stop(supervisor: Supervisor, tmp_path: Path) -> None:
    child = supervisor.start(ChildSpec("sleeper", SLEEPER))
    await child.wait_ready(30)
    listing = tmp_path / "hub" / "processes.json"
    assert json.loads(listing.read_text()) == {"sleeper": child.pid}
    await supervisor.stop()
    assert not listing.exists()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ((sys.executable, "-c", "raise SystemExit('the port is taken')"), "the port is taken"),
        (("/nowhere/nats-server",), "/nowhere/nats-server: cannot be started"),
    ],
    ids=["ends-at-once", "no-such-program"],
)
async def test_a_child_that_cannot_start_is_reported_with_the_end_of_its_log(
    supervisor: Supervisor, argv: tuple[str, ...], said: str
) -> None:
    async def never() -> bool:
        return False

    child = supervisor.start(ChildSpec("broken", argv, ready=never))
    with pytest.raises(HanseError, match="broken did not become ready") as caught:
        await child.wait_ready(60)
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert said in caught.value.message
    assert "broken.log" in caught.value.message


async def test_stopping_leaves_no_process_behind_not_even_a_deaf_one_or_a_childs_child(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    parent = f"import subprocess, sys; print(subprocess.Popen({list(SLEEPER)!r}).pid, flush=True); sys.stdin.read()"
    shell = supervisor.start(ChildSpec("parent", (sys.executable, "-c", parent + "; import time; time.sleep(600)")))
    deaf = supervisor.start(ChildSpec("deaf", STUBBORN, grace=0.2))
    await until(lambda: deaf.log.exists() and "deaf" in deaf.log.read_text())
    await until(lambda: shell.log.exists() and shell.log.read_text().strip().isdigit())
    pids = [*supervisor.pids().values(), int(shell.log.read_text())]
    assert len(pids) == 3
    await supervisor.stop()
    await until(lambda: all(gone(pid) for pid in pids))


async def test_stopping_at_once_after_starting_leaves_no_process_behind(tmp_path: Path) -> None:
    for round_number in range(5):
        supervisor = Supervisor(tmp_path / str(round_number))
        supervisor.start(ChildSpec("sleeper", SLEEPER))
        for _ in range(round_number):
            await asyncio.sleep(0)
        await supervisor.stop()
    mine = {child.pid for child in psutil.Process().children(recursive=True) if child.cmdline() == list(SLEEPER)}
    assert mine == set()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of their parent's death")
async def test_a_killed_supervisor_takes_its_children_with_it(tmp_path: Path) -> None:
    code = f"""
import asyncio
from pathlib import Path
from hanse.embedded.processes import ChildSpec, Supervisor
async def main():
    child = Supervisor(Path({str(tmp_path)!r})).start(ChildSpec("sleeper", {SLEEPER!r}))
    await child.wait_ready(30)
    print(child.pid, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:  # noqa: ASYNC220
        assert parent.stdout is not None
        child = int(await asyncio.to_thread(parent.stdout.readline))
        assert not gone(child)
        parent.kill()
        await until(lambda: gone(child))


HOLD = """
import sys
from pathlib import Path
from hanse.embedded.state import StateFolder
with StateFolder(Path(sys.argv[1])).locked():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_holder_is_refused_with_the_firsts_process_and_may_follow_it(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", HOLD, str(tmp_path / "hub")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        with pytest.raises(HanseError, match=f"process {first.pid}") as caught, StateFolder(tmp_path / "hub").locked():
            pass
        assert caught.value.code is ErrorCode.LOCKED
        assert caught.value.exit_status == 13
        assert "--state" in caught.value.hint
        first.kill()
    with StateFolder(tmp_path / "hub").locked():
        pass


def test_ports_stay_the_same_and_a_given_one_is_remembered(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    assert state.url() is None
    assert state.api_key() is None
    first = state.ports(None)
    assert len(set(first.values())) == 3
    assert state.ports(None) == first
    assert state.ports(4711) == {**first, "http": 4711}
    assert state.ports(None)["http"] == 4711
    assert state.url() == "http://127.0.0.1:4711"


def test_chosen_ports_win_over_kept_ones_and_are_kept(tmp_path: Path) -> None:
    state, further = StateFolder(tmp_path), ("public bus", "console")
    first = state.ports(None, further)
    chosen = state.ports(None, further, {"public bus": 443})
    assert chosen == {**first, "public bus": 443}
    assert state.ports(None, further) == chosen
    assert state.ports(None) == {name: chosen[name] for name in ("http", "bus", "store")}
    assert state.ports(None, further) == chosen, "also past a start that has no use for it"


def test_a_kept_port_gives_way_to_the_one_that_is_chosen(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    first = state.ports(None, ["console"])
    moved = state.ports(None, ["console"], {"console": first["store"]})
    assert moved["console"] == first["store"]
    assert len({*moved.values()}) == 4
    assert {**moved, "console": 0, "store": 0} == {**first, "console": 0, "store": 0}


def test_one_port_is_not_chosen_for_two_uses(tmp_path: Path) -> None:
    with pytest.raises(HanseError, match="--bus-port: '443' is not a port of its own: --port has it"):
        StateFolder(tmp_path).ports(443, ["public bus"], {"public bus": 443})
    assert not (tmp_path / "ports.json").exists()


def test_a_damaged_list_of_ports_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    for text in ("", "[]", '{"http": "x"}'):
        (tmp_path / "ports.json").write_text(text)
        for read in (StateFolder(tmp_path).url, lambda: StateFolder(tmp_path).ports(None)):
            with pytest.raises(HanseError, match=r"ports\.json"):
                read()


def test_files_of_secrets_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "hub")
    with state.locked():
        state.ports(None)
        write_durably(state.key_file, "hanse_x\n")
        assert state.api_key() == "hanse_x"
        assert stat.S_IMODE(state.root.stat().st_mode) == 0o700
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in state.root.iterdir()}
    assert modes == {"lock": 0o600, "ports.json": 0o600, "operator.key": 0o600}
