"""Site code that leaves processes behind, or has them eat what it may not: real code in the real worker process."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from adversary.code_site import HERE, Site
from hanse_datapod.worker.client import process
from hanse_datapod.worker.client.process import WorkerProcess
from hanse_datapod.worker.client.process_tree import ProcessTree
from hanse_datapod.worker.sandbox import landlock
from hanse_datapod.worker.sandbox.terms import SandboxPolicy
from hanse_fabric.errors import ErrorCode, HanseError

pytestmark = [
    pytest.mark.skipif(not landlock.version(), reason="this kernel has no Landlock: there is no sandbox"),
    pytest.mark.usefixtures("forked"),
]
in_one_loop = pytest.mark.asyncio(loop_scope="module")

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
            time.sleep(0.1)
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
