"""A group of the kernel's (cgroup) that holds a worker and all that it starts to a limit of memory.

`ProcessTree` counts twenty times a second, so memory that is taken faster is seen late. This limit is never passed: the
kernel ends a process of the group first. A group can be made where this process may write to the cgroups' files: as
root, or where a service manager has delegated them; elsewhere counting alone holds the limit.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_NAME, _OURS = "hanse-worker", "hanse-datapod"
_TRIES, _WAIT_S = 50, 0.02
_UNKNOWN = -1
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Files:
    """How a version of the kernel's interface names things.

    Attributes:
        limits: files that take the limit, in order; first they all take `unlimited`, in the other order.
        kills: file in which the line `oom_kill N` says how many processes the kernel has ended.
    """

    limits: tuple[str, ...]
    unlimited: str
    kills: str


_FIRST = _Files(("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"), "-1", "memory.oom_control")
_SECOND = _Files(("memory.max",), "max", "memory.events")


class MemoryGroup:
    """The group of one process, and of those that it starts from then on.

    Args:
        folder: the group's own; files: of its version.
    """

    def __init__(self, folder: Path, files: _Files) -> None:
        self._folder, self._files = folder, files
        self._held: int | None = None

    @classmethod
    def of(cls, process: int, proc: Path = Path("/proc")) -> MemoryGroup | None:
        """A new group with a process in it; None where none can be made here.

        Args:
            process: its number; proc: where the kernel tells of processes.
        """
        try:
            above, files = _above(proc)
            folder = above / f"{_NAME}-{os.getpid()}-{process}"
            _remove_old(above, folder, proc)
            folder.mkdir()
        except (OSError, LookupError, ValueError) as error:
            _log.debug("no control group for the worker: its memory is counted instead", extra={"reason": str(error)})
            return None
        group = cls(folder, files)
        try:
            _write(folder / "cgroup.procs", str(process))
            if files is _SECOND:
                with suppress(OSError):  # a kernel without swap has no such file
                    _write(folder / "memory.swap.max", "0")
        except OSError as error:
            with suppress(OSError):
                folder.rmdir()
            _log.debug("the worker is in no control group", extra={"reason": str(error)})
            return None
        return group

    def holds(self, limit: int | None) -> bool:
        """Whether `hold` has been done: most tasks have the limit of the one before, and the kernel takes longer for it
        than a tiny model for its step."""
        return self._held == limit

    def hold(self, limit: int | None) -> None:
        """Let them use at most `limit` bytes together; None: any number."""
        # Where more is used already, the first version refuses, and the count finds that out; in the second the kernel
        # ends a process.
        with suppress(OSError):
            self._held = _UNKNOWN
            for name in reversed(self._files.limits):
                self._set(name, self._files.unlimited)
            if limit is not None:
                for name in self._files.limits:
                    self._set(name, str(limit))
            self._held = limit

    def kills(self) -> int:
        """How many of its processes the kernel has ended because all of them together would have passed the limit."""
        with suppress(OSError, ValueError):
            for line in (self._folder / self._files.kills).read_text().splitlines():
                name, _, number = line.partition(" ")
                if name == "oom_kill":
                    return int(number)
        return 0

    async def remove(self) -> None:
        """Remove the group once its processes have ended."""
        for _ in range(_TRIES):
            try:
                self._folder.rmdir()
            except FileNotFoundError:
                return
            except OSError:  # the last of them is not gone yet
                await asyncio.sleep(_WAIT_S)
            else:
                return

    def _set(self, name: str, value: str) -> None:
        if (file := self._folder / name).exists():  # swap is not counted by every kernel
            _write(file, value)


def _above(proc: Path) -> tuple[Path, _Files]:
    """The folder in which this process may make groups.

    Raises:
        OSError, LookupError: there is none.
    """
    groups = dict(_own_groups(proc))
    for line in (proc / "self" / "mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        _, _, _, root, mount, *_ = left.split()
        kind, *_, options = right.split()  # what is mounted may have no name
        if kind == "cgroup" and "memory" in options.split(","):
            return _below(mount, root, groups["memory"]), _FIRST
    for line in (proc / "self" / "mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        _, _, _, root, mount, *_ = left.split()
        if right.split()[0] == "cgroup2":
            return _delegated(_below(mount, root, groups[""]), proc), _SECOND
    raise LookupError("cgroups are not mounted")


def _own_groups(proc: Path) -> Mapping[str, str]:
    """This process's group by controller; that of the second version by the empty name."""
    found: dict[str, str] = {}
    for line in (proc / "self" / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        found |= dict.fromkeys(controllers.split(","), path)
    return found


def _below(mount: str, root: str, path: str) -> Path:
    """Where a group's folder is, given what part of the hierarchy is mounted there."""
    within = path if root == "/" else path.removeprefix(root)
    return Path(mount) / within.lstrip("/")


def _delegated(own: Path, proc: Path) -> Path:
    """In the second version a group with groups below it holds no process itself, so this process moves aside.

    Raises:
        LookupError: other processes are in its group, which are not ours to move; or memory is not held there.
    """
    if own.name == _OURS and "memory" in (own.parent / "cgroup.subtree_control").read_text().split():
        return own.parent
    if "memory" not in (own / "cgroup.controllers").read_text().split():
        raise LookupError("memory is not delegated to this process's group")
    inside = [int(each) for each in (own / "cgroup.procs").read_text().split()]
    if strangers := [each for each in inside if not _ours(each, proc)]:
        raise LookupError(f"{len(strangers)} processes of others are in this process's group")
    (own / _OURS).mkdir(exist_ok=True)
    for each in inside:
        with suppress(ProcessLookupError):
            _write(own / _OURS / "cgroup.procs", str(each))
    _write(own / "cgroup.subtree_control", "+memory")
    return own


def _ours(process: int, proc: Path) -> bool:
    """Whether a process is this one, or was started by it."""
    with suppress(OSError):
        while process > 1:
            if process == os.getpid():
                return True
            process = int((proc / str(process) / "stat").read_text().rpartition(")")[2].split()[1])
    return process == os.getpid()


def _remove_old(above: Path, new: Path, proc: Path) -> None:
    """Remove groups that were left: of datapods that were killed, and of workers that ended late.

    A datapod that begins anew in a container has the number that the one before had, and so may its worker. Their group
    would tell of processes that the kernel has ended in an earlier life.
    """
    for folder in above.glob(f"{_NAME}-*-*"):
        datapod, _, worker = folder.name.removeprefix(f"{_NAME}-").partition("-")
        if folder == new or not all((proc / number).exists() for number in (datapod, worker)):
            with suppress(OSError):  # it still has processes
                folder.rmdir()


def _write(file: Path, text: str) -> None:
    with file.open("w") as opened:
        opened.write(text)
