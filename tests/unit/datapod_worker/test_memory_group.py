"""The group that holds a worker's memory: what an earlier datapod has left does not count, and odd mounts harm nothing.

Of the kernel's first version its own files are used, where this user may; of the second, folders as it lays them.
"""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hanse_datapod.worker.client import memory_group
from hanse_datapod.worker.client.memory_group import MemoryGroup

MIB = 1 << 20
EAT = "import sys; sys.stdin.read(1); held = b'x' * (200 << 20)"


@pytest.fixture
def sleeper():
    with subprocess.Popen(["sleep", "9"]) as process:
        yield process
        process.kill()


@pytest.fixture
def group(sleeper):
    made = MemoryGroup.of(sleeper.pid)
    if made is None:
        pytest.skip("this user may make no control groups here")
    yield made
    sleeper.kill()
    sleeper.wait()
    made._folder.rmdir()


def left_behind(above: Path, *numbers: int) -> Path:
    folder = above / "-".join(["hanse-worker", *map(str, numbers)])
    folder.mkdir()
    return folder


def test_groups_of_datapods_and_workers_that_have_ended_are_removed(group, sleeper):
    with subprocess.Popen(["true"]) as ended:
        pass
    above = group._folder.parent
    left = [left_behind(above, *pair) for pair in ((ended.pid, sleeper.pid), (os.getpid(), ended.pid))]
    with subprocess.Popen(["sleep", "9"]) as other:
        second = MemoryGroup.of(other.pid)
        assert second is not None
        assert not [folder for folder in left if folder.exists()]
        assert group._folder.exists()  # its worker lives
        other.kill()
    second._folder.rmdir()


def test_a_worker_is_not_told_of_what_the_kernel_ended_in_an_earlier_group_of_its_name(group):
    with subprocess.Popen(["sleep", "9"]) as worker:
        left = MemoryGroup(left_behind(group._folder.parent, os.getpid(), worker.pid), group._files)
        with subprocess.Popen([sys.executable, "-c", EAT], stdin=subprocess.PIPE) as eater:
            (left._folder / "cgroup.procs").write_text(str(eater.pid))
            left.hold(60 * MIB)
            eater.communicate(b"x")
        assert left.kills() == 1  # the control: the kernel has ended it
        new = MemoryGroup.of(worker.pid)
        assert new is not None
        assert new._folder == left._folder
        assert new.kills() == 0
        worker.kill()
    new._folder.rmdir()


def test_a_limit_that_the_kernel_refused_is_asked_for_again(group, monkeypatch):
    """Of bytes that cannot be set where more is used already, as may change until the next task."""
    asked = []

    def refuse(file, text):
        asked.append(file.name)
        if text not in {"-1", "max"}:
            raise OSError(errno.EBUSY, "used already")

    with monkeypatch.context() as refused:
        refused.setattr(memory_group, "_write", refuse)
        group.hold(300 * MIB)
    assert not group.holds(300 * MIB)
    group.hold(300 * MIB)
    assert group.holds(300 * MIB)
    assert asked
    assert int((group._folder / group._files.limits[0]).read_text()) == 300 * MIB


def test_what_is_held_is_known_for_every_change_of_the_limit(group):
    first = group._folder / group._files.limits[0]
    for limit in (None, 300 * MIB, 300 * MIB, 200 * MIB, None, 200 * MIB):
        if not group.holds(limit):
            group.hold(limit)
        found = int(first.read_text())
        assert found == limit if limit is not None else found > 1 << 60
        assert group.holds(limit)
        assert not group.holds(1 if limit is None else None)


@pytest.fixture
def delegated(tmp_path):
    """(proc, own group): of a datapod to which a service manager has given a group of the second version."""
    own = tmp_path / "cgroup" / "hanse.service"
    own.mkdir(parents=True)
    (own / "cgroup.controllers").write_text("cpu memory\n")
    (own / "cgroup.procs").write_text(f"{os.getpid()}\n")
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text("0::/hanse.service\n")
    (proc / "self" / "mountinfo").write_text(
        "22 1 0:20 / /scratch rw - tmpfs  rw\n"  # a mount of something without a name
        f"31 22 0:26 / {tmp_path}/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
    )
    return proc, own


def test_in_the_second_version_the_datapod_moves_aside_and_the_worker_has_a_group(delegated):
    proc, own = delegated
    made = MemoryGroup.of(7, proc)
    assert made is not None
    assert (own / "hanse-datapod" / "cgroup.procs").read_text() == str(os.getpid())
    assert (own / "cgroup.subtree_control").read_text() == "+memory"
    assert made._folder.parent == own
    assert (made._folder / "cgroup.procs").read_text() == "7"
    (made._folder / "memory.max").write_text("max")
    made.hold(5 * MIB)
    assert (made._folder / "memory.max").read_text() == str(5 * MIB)
    (made._folder / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\n")
    assert made.kills() == 2


@pytest.mark.parametrize(("file", "text"), [("cgroup.procs", "1\n"), ("cgroup.controllers", "cpu\n")])
def test_where_others_are_in_the_group_or_memory_is_not_delegated_no_group_is_made(delegated, file, text):
    proc, own = delegated
    (own / file).write_text(text)
    assert MemoryGroup.of(7, proc) is None
    assert not [each for each in own.iterdir() if each.is_dir()]
