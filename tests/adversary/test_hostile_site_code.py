"""Site code that the administrator has approved, and that wants the site's keys, the network, or to stay, leaves
processes behind, or has them eat what it may not.

Real code in the real worker process. Each attack is played in the sandbox and, as its control, with the sandbox off
(`sandbox.mode: none`), where it succeeds.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import psutil
import pytest

from adversary.code_site import HERE, KEY, Site
from hanse_datapod.cli import main
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.home.folders import TaskFolders
from hanse_datapod.worker.client import process
from hanse_datapod.worker.client.process import WorkerProcess
from hanse_datapod.worker.client.process_tree import ProcessTree
from hanse_datapod.worker.client.shared import SharedWorker
from hanse_datapod.worker.port import WorkOutcome
from hanse_datapod.worker.sandbox import landlock
from hanse_datapod.worker.sandbox.terms import Confinement, Reach, SandboxPolicy
from hanse_datapod.worker.told import check_frame, outcome_of
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import TaskKind

pytestmark = [
    pytest.mark.skipif(not landlock.version(), reason="this kernel has no Landlock: there is no sandbox"),
    pytest.mark.usefixtures("forked"),
]
in_one_loop = pytest.mark.asyncio(loop_scope="module")

TOKEN = "join_the-sites-token"


@pytest.fixture(scope="module")
def other_process() -> Iterator[int]:
    """A process of the datapod's user that has a token in its environment."""
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=os.environ | {"HANSE_TOKEN": TOKEN}) as process:
        yield process.pid
        process.kill()


@pytest.fixture(scope="module")
def listening() -> Iterator[int]:
    """The port of a server of this machine, which takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_take_all, args=(server,), daemon=True).start()
        yield server.getsockname()[1]


def _take_all(server: socket.socket) -> None:
    while True:
        try:
            server.accept()[0].close()
        except OSError:
            return


@pytest.fixture(scope="module")
def abstract() -> Iterator[str]:
    """The name of a local socket without a file, which services of a machine listen on."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0hanse-test-service")
        server.listen()
        yield "hanse-test-service"


def asks(site: Site, other_process: int, listening: int, abstract: str) -> list[tuple[str, dict[str, Any]]]:
    """Each attack on secrets and network, with what it needs to know."""
    home, key = str(site.home), str(site.home / "signing.pem")
    return [
        ("read", {"path": key}),
        ("read", {"path": f"/proc/self/root{key}"}),
        ("read_by_link", {"path": key}),
        ("read_by_hard_link", {"path": key}),
        ("read_by_program", {"path": key}),
        ("list", {"path": home}),
        ("write", {"path": f"{home}/outbox.jsonl"}),
        ("cut", {"path": f"{home}/cut"}),
        ("read", {"path": f"/proc/{other_process}/environ"}),
        ("read_environments", {"wanted": TOKEN}),
        ("connect", {"port": listening}),
        ("connect_to_service", {"name": abstract}),
        ("signal", {"pid": other_process}),
    ]


@in_one_loop
async def test_keys_environment_files_network_and_other_processes_are_out_of_reach(
    closed: Site, other_process: int, listening: int, abstract: str
) -> None:
    (closed.home / "cut").write_bytes(KEY)
    wanted = asks(closed, other_process, listening, abstract)
    reached = [(attack, given) for attack, given in wanted if await closed.said(attack, **given)]
    assert reached == []
    assert (closed.home / "cut").read_bytes() == KEY


@in_one_loop
@pytest.mark.control(
    "test_keys_environment_files_network_and_other_processes_are_out_of_reach",
    "test_where_namespaces_are_refused_as_in_containers_files_and_network_are_closed_all_the_same",
)
async def test_control_without_the_sandbox_each_of_these_attacks_succeeds(
    opened: Site, other_process: int, listening: int, abstract: str
) -> None:
    (opened.home / "cut").write_bytes(KEY)
    wanted = asks(opened, other_process, listening, abstract)
    missed = [(attack, given) for attack, given in wanted if not await opened.said(attack, **given)]
    assert missed == []


@in_one_loop
async def test_an_honest_code_reads_its_data_writes_temporary_files_and_starts_programs(closed: Site) -> None:
    data = str(closed.folder / "data" / "ward.npz")
    assert await closed.said("read", path=data)
    assert await closed.said("work_as_usual")
    if (await closed.process.confinement()).processes:
        assert await closed.said("talk_to_itself")


@in_one_loop
async def test_a_link_in_place_of_the_update_brings_no_key_out(closed: Site) -> None:
    outcome = await closed.do("answer_with_link", path=str(closed.home / "signing.pem"))
    with pytest.raises(HanseError, match="is a link or no file") as caught:
        TaskFolders(closed.home).take(_task(outcome), outcome)
    assert caught.value.code is ErrorCode.TAMPERED


@in_one_loop
@pytest.mark.control("test_a_link_in_place_of_the_update_brings_no_key_out")
async def test_control_an_update_that_is_read_where_the_code_put_it_brings_the_key_out(closed: Site) -> None:
    outcome = await closed.do("answer_with_link", path=str(closed.home / "signing.pem"))
    assert outcome.update is not None
    assert outcome.update.read_bytes() == KEY


class _task:  # noqa: N801 - as much of a task as its folders look at
    masking, config, workflow = None, {}, "federated_averaging"
    kind = TaskKind.TRAIN

    def __init__(self, outcome: WorkOutcome) -> None:
        assert outcome.update is not None
        self.run, self.id = outcome.update.name.split(".")[:2]


WORKED = {
    "kind": "done", "update": True, "examples": 4, "metrics": {"succeeded": 1.0}, "seconds": 0.1, "code_digest": None,
    "extras": [], "info": {}, "note": "", "data": {},
}  # fmt: skip
FRAMES: list[Any] = [
    [], {}, {"kind": "progress"}, {"kind": "sum"}, {"kind": "error"}, {"kind": "ready"}, {"kind": "nobody knows"},
    {"kind": "progress", "fraction": "far", "text": 3}, {"kind": "sum", "key": "a.>", "values": "AQ=="},
]  # fmt: skip
FORGED: list[Any] = [
    WORKED, WORKED | {"examples": "many"}, WORKED | {"extras": ["../../signing.pem"]}, WORKED | {"metrics": [1]},
    WORKED | {"data": {"fingerprint": 3}}, {"kind": "done"},
]  # fmt: skip


@in_one_loop
@pytest.mark.parametrize("text", [*map(json.dumps, FRAMES[::4]), "no JSON", "[" * 100_000], ids=lambda text: text[:40])
async def test_what_no_worker_says_fails_the_task_and_the_next_one_is_done(closed: Site, text: str) -> None:
    """One of each kind, for every one costs a process."""
    with pytest.raises(HanseError) as caught:
        await closed.do("say", text=text)
    assert caught.value.code is ErrorCode.INTERNAL
    assert await closed.said("nothing")


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: json.dumps(frame)[:40])
def test_every_frame_that_no_worker_says_is_refused(frame: Any) -> None:
    with pytest.raises(HanseError) as caught:
        check_frame(frame)
    assert caught.value.code is ErrorCode.INTERNAL


@pytest.mark.control(
    "test_what_no_worker_says_fails_the_task_and_the_next_one_is_done",
    "test_every_frame_that_no_worker_says_is_refused",
)
@in_one_loop
async def test_control_what_is_taken_as_it_comes_raises_what_nobody_foresaw(
    closed: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as changed:
        changed.setattr(process, "check_frame", lambda frame: frame)
        with pytest.raises(KeyError):
            await closed.do("say", text="{}")
    assert await closed.said("nothing")


@in_one_loop
@pytest.mark.parametrize("frame", FORGED, ids=lambda frame: json.dumps(frame)[-30:])
async def test_an_answer_that_code_forges_is_never_taken_for_that_of_the_next_task(
    closed: Site, frame: dict[str, Any]
) -> None:
    assert await closed.said("say", text=json.dumps(frame))
    assert not await closed.said("read", path=str(closed.home / "signing.pem"))
    with pytest.raises(HanseError, match="not what a worker says"):
        outcome_of(frame | {"examples": -1}, closed.home / "made")


@pytest.mark.control("test_an_answer_that_code_forges_is_never_taken_for_that_of_the_next_task")
@in_one_loop
async def test_control_where_answers_are_not_of_one_request_the_next_task_has_the_answer_of_the_one_before(
    closed: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        with monkeypatch.context() as changed:
            changed.setattr(process, "check_last", lambda answer: answer | {"request": ANY})
            assert (await closed.do("say", text=json.dumps(WORKED | {"examples": 77}))).examples == 77
            assert await closed.said("read", path=str(closed.home / "signing.pem")), "what the code said, not this one"
    finally:
        await closed.process._kill()


def test_where_namespaces_are_refused_as_in_containers_files_and_network_are_closed_all_the_same(
    tmp_path: Path,
) -> None:
    command = [sys.executable, str(HERE / "lonely_agent.py"), str(tmp_path), "as-in-a-container"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240).stdout.splitlines()
    assert told == ["closed are keys and files, the network; open are other processes", "reads 0.0", "connects 0.0"]


@in_one_loop
async def test_a_policy_that_demands_a_sandbox_runs_no_code_where_there_is_none(closed: Site) -> None:
    await closed.do("nothing")
    child = closed.process._child
    assert child is not None
    had, child.confinement = child.confinement, Confinement()
    try:
        with pytest.raises(HanseError, match="in a sandbox alone; here open are keys and files") as caught:
            await closed.do("nothing")
    finally:
        child.confinement = had
    assert caught.value.code is ErrorCode.POLICY
    assert closed.process._child is child


@pytest.mark.control("test_a_policy_that_demands_a_sandbox_runs_no_code_where_there_is_none")
@in_one_loop
async def test_control_where_nobody_asks_what_is_closed_the_code_runs_all_the_same(
    closed: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await closed.do("nothing")
    child = closed.process._child
    assert child is not None
    with monkeypatch.context() as changed:
        changed.setattr(child, "confinement", Confinement())
        changed.setattr(process, "_require_sound", lambda _confinement: None)
        assert await closed.said("nothing")


@pytest.mark.no_attack("what the command says")
def test_the_administrator_is_told_what_is_closed_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = tmp_path / "policy.yaml"
    told = []
    for mode in ("required", "none"):
        policy.write_text(f"sandbox: {{mode: {mode}}}")
        assert main(["sandbox", "--policy", str(policy)]) == 0
        told.append(capsys.readouterr().out)
    assert told[0].startswith("closed are keys and files, the network")
    assert told[1] == "open are keys and files, the network, other processes\n"


def test_a_home_in_a_folder_that_the_worker_reads_is_refused(tmp_path: Path) -> None:
    shared = SharedWorker(participants=1)
    with pytest.raises(HanseError, match=r"is not a folder outside of .*, which the worker reads"):
        shared.participant(DataSettings(train=tmp_path), tmp_path / "home")


@pytest.mark.control("test_a_home_in_a_folder_that_the_worker_reads_is_refused")
async def test_control_a_home_that_is_not_kept_apart_is_read_from_within_the_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reach, "require_apart", lambda *_: None)
    site = Site(tmp_path / "site", SandboxPolicy(mode="required", read=(tmp_path / "site",)))
    try:
        assert await site.said("read", path=str(site.home / "signing.pem"))
    finally:
        await site.shared.close()


MARK = "hanse-left-running"
MIB = 1 << 20


@in_one_loop
async def test_no_process_stays_when_a_task_has_ended(closed: Site) -> None:
    await closed.do("leave_process", mark=MARK + "-a")
    assert running(MARK + "-a") == 0


@in_one_loop
@pytest.mark.control("test_no_process_stays_when_a_task_has_ended")
async def test_control_where_nobody_looks_what_a_task_has_started_stays_until_the_worker_ends(
    closed: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: object) -> None:
        return None

    with monkeypatch.context() as changed:
        changed.setattr(WorkerProcess, "_end_what_is_left", nothing)
        await closed.do("leave_process", mark=MARK + "-b")
    assert running(MARK + "-b") == 1
    await closed.process._kill()
    assert running(MARK + "-b") == 0


@in_one_loop
async def test_a_task_that_fails_leaves_no_process(closed: Site, opened: Site) -> None:
    for site in (closed, opened):
        with pytest.raises(HanseError, match=r"ended \(status 3\)"):
            await site.do("leave_process_and_end", mark=f"{MARK}-f")
        assert running(f"{MARK}-f") == 0


KEEPS_NOTHING = """
from hanse_datapod.worker.sandbox import keeper
keeper.die_with_parent = lambda *_: None
keeper._end_all_below = lambda: None
"""


@pytest.fixture
def unkept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for a site whose worker nothing keeps: neither the kernel nor the process above it ends what it
    started."""
    (tmp_path / "sitecustomize.py").write_text(KEEPS_NOTHING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


@pytest.mark.control("test_a_task_that_fails_leaves_no_process")
async def test_control_what_a_worker_started_outlives_it_where_nothing_keeps_it(unkept: Path) -> None:
    site = Site(unkept / "site", SandboxPolicy(mode="none"))
    with pytest.raises(HanseError, match=r"ended \(status 3\)"):
        await site.do("leave_process_and_end", mark=f"{MARK}-d")
    await site.shared.close()
    left = processes(f"{MARK}-d")
    for each in left:
        each.kill()
    assert len(left) == 1


@in_one_loop
async def test_memory_is_that_of_the_worker_and_of_all_that_it_started(closed: Site) -> None:
    limit = await own_memory(closed) + 150 * MIB
    with pytest.raises(HanseError, match=r"MiB of memory, \d+ are allowed") as caught:
        await closed.do("eat", children=4, mib=100, memory=limit)
    assert caught.value.code is ErrorCode.TOO_LARGE


@in_one_loop
@pytest.mark.control("test_memory_is_that_of_the_worker_and_of_all_that_it_started")
async def test_control_who_counts_the_worker_alone_sees_no_child_eat(
    closed: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = await own_memory(closed) + 150 * MIB
    child = closed.process._child
    assert child is not None
    with monkeypatch.context() as changed:
        changed.setattr(ProcessTree, "members", lambda _tree, **_how: child.own)
        changed.setattr(child, "group", None)
        assert await closed.said("eat", children=4, mib=100, memory=limit)


@pytest.fixture
def nobody_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_MEMORY_EVERY", 3600.0)


@in_one_loop
@pytest.mark.usefixtures("nobody_counts")
async def test_memory_that_is_taken_faster_than_it_is_counted_is_not_given(closed: Site) -> None:
    limit = await own_memory(closed) + 150 * MIB
    child = closed.process._child
    assert child is not None
    if child.group is None:
        pytest.skip("this user may make no control groups here: memory is counted, and nothing else holds it")
    with pytest.raises(HanseError, match=r"more than \d+ MiB of memory, \d+ are allowed") as caught:
        await closed.do("eat", children=1, mib=400, memory=limit)
    assert caught.value.code is ErrorCode.TOO_LARGE
    assert not child.group._folder.exists()
    await closed.do("nothing")  # by the next process, in a group of its own


@in_one_loop
@pytest.mark.usefixtures("nobody_counts")
@pytest.mark.control("test_memory_that_is_taken_faster_than_it_is_counted_is_not_given")
async def test_control_where_the_kernel_holds_nothing_fast_memory_is_had(closed: Site) -> None:
    limit = await own_memory(closed) + 150 * MIB
    child = closed.process._child
    assert child is not None
    child.group = None
    assert await closed.said("eat", children=1, mib=400, memory=limit)


async def own_memory(site: Site) -> int:
    """What the worker uses when it is ready, without what it shares with others: it is forked."""
    await site.do("nothing")
    child = site.process._child
    assert child is not None
    child.tree.members(fresh=True)
    return child.tree.memory(0)


def killed_agent(folder: Path, mark: str, *mode: str) -> tuple[list[psutil.Process], list[psutil.Process]]:
    """What its code has left, and what it ran in, of a datapod that was killed then."""
    command = [sys.executable, str(HERE / "lonely_agent.py"), str(folder), "leave", mark, *mode]
    with subprocess.Popen(command) as agent:
        while not (left := processes(mark)):
            assert agent.poll() is None
            time.sleep(0.3)
        below = psutil.Process(agent.pid).children(recursive=True)
        agent.kill()
    return left, below


def test_nothing_stays_when_the_datapod_is_killed(tmp_path: Path) -> None:
    left, _ = killed_agent(tmp_path, f"{MARK}-c")
    assert not psutil.wait_procs(left, timeout=60)[1]


@pytest.mark.control("test_nothing_stays_when_the_datapod_is_killed")
def test_control_what_its_code_started_outlives_the_datapod_where_nothing_keeps_it(unkept: Path) -> None:
    left, below = killed_agent(unkept, f"{MARK}-e", "none")
    stay = psutil.wait_procs(left, timeout=2)[1]
    for each in {*left, *below}:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    assert len(stay) == 1


def processes(mark: str) -> list[psutil.Process]:
    """Those that code has left with the mark as their last argument, whoever started them. (A datapod whose code is
    to leave one is told the mark, too.)"""
    found = psutil.process_iter(["cmdline"])
    return [each for each in found if (each.info["cmdline"] or ())[1:] == ["-c", "import time; time.sleep(600)", mark]]


def running(mark: str) -> int:
    return len(processes(mark))
