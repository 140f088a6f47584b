"""The worker's process as the agent sees it: started at once, warm between tasks, killed at a limit, restarted.

The process is `python -m hanse_datapod.worker`, with `--studies` for one without torch, or was forked before the agent
began, for either. It ends by itself when its stdin closes, so it never outlives the agent. Site code runs in it: it
gets none of the agent's HANSE_ variables, and is in a sandbox (`worker.sandbox`). It may reach what requests have
named; for more, another process takes its place.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from hanse_datapod.worker.client.adopted import AdoptedProcess, take_prepared
from hanse_datapod.worker.client.memory_group import MemoryGroup
from hanse_datapod.worker.client.process_tree import ProcessTree
from hanse_datapod.worker.client.sums import answer_sum
from hanse_datapod.worker.foreign import BEGIN
from hanse_datapod.worker.frames import error_of, length_of, pack, unpack
from hanse_datapod.worker.port import AskSum, OnProgress
from hanse_datapod.worker.sandbox.terms import Confinement, Reach, identity_of, runs_code
from hanse_datapod.worker.told import check_frame, check_last, confinement_of
from hanse_fabric.errors import ErrorCode, HanseError

_START_LIMIT = 120.0
_MEMORY_EVERY = 0.05
_STOP_LIMIT = 5.0
# glibc gives large blocks back to the system when they are freed, and the next round's gradients would be fresh pages
# again, which cost a third of a small round's time: up to this much free memory is kept.
_TRAINING = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
# The same for tiles of genotypes. The larger arrays read from files are mapped apart and given back once dropped.
_STUDYING = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(128 << 20)}
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Child:
    """A running process, and whether it has said that it is ready.

    Attributes:
        tree: it, and all that it has started.
        scratch: its temporary files.
        files: what lay where it may reach when it began.
        own: the processes that it began with, and its foreign interpreters.
        group: of the kernel's, which holds all of them to the limit of memory; None where none can be made.
        interpreters: that it has started, by path.
    """

    process: asyncio.subprocess.Process | AdoptedProcess
    tree: ProcessTree
    scratch: TemporaryDirectory[str]
    reach: Reach
    files: dict[Path, tuple[int, int] | None]
    own: frozenset[psutil.Process] = frozenset()
    confinement: Confinement | None = None
    group: MemoryGroup | None = None
    interpreters: set[str] = field(default_factory=set)

    def reaches(self, wanted: Reach) -> bool:
        """Whether it may open what is wanted: the very files that lie there now. (Of other participants of this process
        nothing is looked at: there may be hundreds.)"""
        places = self.reach.places_of(wanted)
        return places is not None and all(identity_of(place) == self.files.get(place) for place in places)


@dataclass(slots=True, eq=False)
class WorkerProcess:
    """One child process that answers one request at a time.

    Attributes:
        studies: it computes on genotypes, and loads no torch.
        threads: of its linear algebra.
        reach: what it may reach from its start on.
    """

    studies: bool = False
    threads: int = 1
    reach: Reach = field(default_factory=Reach)
    _child: _Child | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _closed: bool = False
    _asked: int = 0

    async def start(self) -> None:
        """Start the child if there is none; does not wait until it is ready."""
        if self._closed:
            raise HanseError(ErrorCode.CANCELLED, "worker: it was closed")
        if self._child is not None and self._child.process.returncode is None:
            return
        # One thread is what it was forked with, and who computes studies may be given more.
        prepared = await take_prepared() if self.threads == 1 else None
        process = prepared or await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "hanse_datapod.worker",
            *(["--studies"] if self.studies else []),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            env=_environment(_STUDYING if self.studies else _TRAINING, self.threads),
        )
        scratch = TemporaryDirectory(prefix="hanse-worker-", ignore_cleanup_errors=True)
        child = self._child = _Child(process, ProcessTree(process.pid), scratch, self.reach, self.reach.files())
        try:  # before it may start others: they are in its group then
            child.group = await asyncio.to_thread(MemoryGroup.of, process.pid)
        finally:
            _write(child, pack({"reach": self.reach.body(), "scratch": scratch.name, "studies": self.studies}))

    @property
    def pid(self) -> int | None:
        """The child's process id, where one runs."""
        return self._child.process.pid if self._child is not None else None

    async def confinement(self) -> Confinement:
        """What the child's sandbox closes, once it is ready.

        Raises:
            HanseError: TIMEOUT; UNAVAILABLE where it ends before.
        """
        async with self._turn:
            await self.start()
            if self._child is None:
                raise HanseError(ErrorCode.INTERNAL, "worker: no process")
            return await self._until_ready(self._child)

    async def request(
        self, body: dict[str, Any], *, time_limit: float, memory_limit: int | None, on_progress: OnProgress,
        exchange: AskSum | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Send a request and return the answer. The child is killed when a request is cancelled or fails midway.

        Raises:
            HanseError: TIMEOUT, TOO_LARGE (memory), UNAVAILABLE where the child died (the agent asks again), or what
                the child raised.
        """
        async with self._turn:
            wanted = Reach.of(body)
            if self._child is None or not self._child.reaches(wanted):
                self.reach = self.reach.joined(wanted)
                await self._kill()
            await self.start()
            child = self._child
            if child is None:
                raise HanseError(ErrorCode.INTERNAL, "worker: no process")
            async with self._replaced_where_it_fails():
                confinement = await self._until_ready(child)
            if child.reach.policy.mode == "required" and runs_code(body):
                _require_sound(confinement)
            async with self._replaced_where_it_fails():
                answer = await self._converse(child, body, time_limit, memory_limit, on_progress, exchange)
            if runs_code(body):  # no other work starts processes
                await self._end_what_is_left(child, _interpreter_of(body))
        if answer["kind"] == "error":
            raise error_of(answer)
        return answer

    async def close(self) -> None:
        """Kill the child; a request that waits for it ends with an error."""
        self._closed = True
        await self._kill()

    async def _until_ready(self, child: _Child) -> Confinement:
        if child.confinement is not None:
            return child.confinement
        try:
            async with asyncio.timeout(_START_LIMIT):
                told = await _read(child)
        except TimeoutError:
            raise HanseError(
                ErrorCode.TIMEOUT, f"worker: not ready {_START_LIMIT:.0f} s after its start",
                hint="see its messages in the datapod's log",
            ) from None  # fmt: skip
        child.confinement = confinement_of(told)
        child.own = child.tree.members(fresh=True)
        level = logging.INFO if child.confinement.sound else logging.WARNING
        _log.log(level, "the worker's sandbox", extra={"sandbox": str(child.confinement)})
        return child.confinement

    async def _converse(
        self, child: _Child, body: dict[str, Any], time_limit: float, memory_limit: int | None, on_progress: OnProgress,
        exchange: AskSum | None,
    ) -> dict[str, Any]:  # fmt: skip
        ends = time.monotonic() + time_limit
        self._asked += 1
        if child.group is not None and not child.group.holds(memory_limit):
            await asyncio.to_thread(child.group.hold, memory_limit)
        _write(child, pack(body | {"request": self._asked}))
        reading = asyncio.ensure_future(_read(child))
        try:
            while True:
                left = ends - time.monotonic()
                wait = left if memory_limit is None else min(left, _MEMORY_EVERY)
                done, _ = await asyncio.wait({reading}, timeout=max(0.0, wait))
                if done:
                    if memory_limit is not None:
                        self._check_kills(child, memory_limit)  # it says why the process has ended, too
                    answer = reading.result()
                    if answer["kind"] == "sum" and exchange is not None:
                        _write(child, pack(await answer_sum(exchange, answer, limit=left)))
                    elif answer["kind"] == "progress":
                        on_progress(answer["fraction"], answer["text"])
                    elif check_last(answer)["request"] == self._asked:
                        return answer
                    # Else it answers a request of before, or none: site code wrote it.
                    reading = asyncio.ensure_future(_read(child))
                if time.monotonic() >= ends:
                    raise self._too_long(time_limit)
                if memory_limit is not None:
                    self._check_kills(child, memory_limit)
                    self._check_memory(child.tree, memory_limit)
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError, HanseError):
                await reading

    def _too_long(self, limit: float) -> HanseError:
        what, less = ("the study's step", "smaller chunks") if self.studies else ("training", "fewer epochs")
        return HanseError(
            ErrorCode.TIMEOUT, f"{what} did not end within {limit:g} s and was stopped",
            hint=f"{less}, or a longer limit in the site's policy and the job's deadline",
        )  # fmt: skip

    def _check_memory(self, tree: ProcessTree, limit: int) -> None:
        if (used := tree.memory(limit)) > limit:
            raise self._too_much(f"{used >> 20}", limit)

    def _check_kills(self, child: _Child, limit: int) -> None:
        if child.group is not None and child.group.kills():  # each child has a group of its own
            raise self._too_much(f"more than {limit >> 20}", limit)

    def _too_much(self, used: str, limit: int) -> HanseError:
        what, less = ("the study", "smaller chunks") if self.studies else ("training", "a smaller batch or model")
        return HanseError(
            ErrorCode.TOO_LARGE,
            f"{what} used {used} MiB of memory, {limit >> 20} are allowed, and was stopped",
            hint=f"{less}, or a higher limit in the site's policy",
        )

    @asynccontextmanager
    async def _replaced_where_it_fails(self) -> AsyncIterator[None]:
        try:
            yield
        except BaseException:
            await self._kill()
            if not self._closed:
                with suppress(OSError, HanseError):
                    await self.start()  # the next task finds it warm
            raise

    async def _end_what_is_left(self, child: _Child, interpreter: str | None) -> None:
        """End processes that the work has started and left, with the one that it was done in. The first that runs
        a foreign interpreter's own file stays: it has its libraries loaded. So does one that it has stopped, in which
        the run's code waits for its next task."""
        left = child.tree.members(fresh=True) - child.own
        if interpreter is not None and interpreter not in child.interpreters:
            carriers = [each for each in left if _carries(each, interpreter)]
            if carriers:
                first = min(carriers, key=lambda each: (each.create_time(), each.pid))
                child.own |= {first}
                child.interpreters.add(interpreter)
                left -= {first}
        waiting = {each for each in left if _waits(each, child.own)}
        if len(waiting) == 1:
            left -= waiting
        if left:
            _log.info("the work has left processes, which were ended", extra={"processes": len(left)})
            await self._kill()
            await self.start()

    async def _kill(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        try:
            async with asyncio.timeout(_STOP_LIMIT):
                await child.tree.end()
                await child.process.wait()
        except TimeoutError:
            _log.warning("the worker's processes did not end", extra={"processes": len(child.tree.members())})
        if child.group is not None:
            await child.group.remove()
        await asyncio.to_thread(child.scratch.cleanup)


def _require_sound(confinement: Confinement) -> None:
    """Refuse to run site code where the policy wants a sandbox that this machine does not have.

    Raises:
        HanseError: POLICY.
    """
    if not confinement.sound:
        raise HanseError(
            ErrorCode.POLICY,
            f"the site's policy forbids it: sandbox.mode: site code runs in a sandbox alone; here {confinement}",
            hint="a kernel of Linux 5.13 or later with Landlock, or the policy's sandbox.mode: auto",
        )


def _interpreter_of(body: dict[str, Any]) -> str | None:
    """The foreign interpreter that a request's code runs in; None where it runs in none."""
    kind = dict(dict(body.get("config") or {}).get("code") or {}).get("kind", "hanse")
    return (dict(body.get("foreign") or {}).get(kind) or {}).get("interpreter")


def _carries(process: psutil.Process, interpreter: str) -> bool:
    return _is_carrier(process) and process.cmdline()[:1] == [interpreter]


def _waits(process: psutil.Process, own: frozenset[psutil.Process]) -> bool:
    """Whether a foreign interpreter has stopped it: it does nothing until that one's next task."""
    try:
        above = process.parent()
        return process.status() == psutil.STATUS_STOPPED and above in own and above is not None and _is_carrier(above)
    except psutil.Error:
        return False


def _is_carrier(process: psutil.Process) -> bool:
    try:
        return str(BEGIN) in process.cmdline()
    except psutil.Error:
        return False


def _environment(allocator: dict[str, str], threads: int) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HANSE_")}
    libraries = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
    return allocator | kept | libraries | {"PYTHONHASHSEED": "0"}


def _write(child: _Child, frame: bytes) -> None:
    if child.process.stdin is None:
        raise HanseError(ErrorCode.INTERNAL, "worker: no pipe to its stdin")
    child.process.stdin.write(frame)


async def _read(child: _Child) -> dict[str, Any]:
    stream = child.process.stdout
    if stream is None:
        raise HanseError(ErrorCode.INTERNAL, "worker: no pipe from its stdout")
    try:
        text = await stream.readexactly(length_of(await stream.readexactly(4)))
    except (asyncio.IncompleteReadError, ConnectionError):
        status = await child.process.wait()
        _log.warning("the worker's process %s ended with status %s", child.process.pid, status)
        raise HanseError(
            ErrorCode.UNAVAILABLE, f"the worker's process ended (status {status}) before it answered",
            hint="a status of -9 mostly means that the machine ran out of memory; see the datapod's log",
        ) from None  # fmt: skip
    return check_frame(unpack(text))
