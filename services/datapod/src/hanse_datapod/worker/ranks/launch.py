"""Starts the processes (ranks) of a training by torch's elastic launch, as `torchrun` does; passes on what they say.

They are below the worker's process: its sandbox, its limits of time and memory, and its end are theirs. The first of
them that fails ends the others; what it has said is the answer. One that dies without a word ends the work with
UNAVAILABLE, on which the agent has the same work done again.
"""

from __future__ import annotations

import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from hanse_datapod.worker.frames import error_of, pack, read_frame
from hanse_datapod.worker.port import WorkOutcome
from hanse_datapod.worker.server.answering import Send
from hanse_datapod.worker.told import outcome_of
from hanse_fabric.errors import ErrorCode, HanseError, invalid

_HERE = "127.0.0.1"
_STOP_S = 5
_LOOK_S = 0.1
_SOCKET = "ranks"


def divide(body: dict[str, Any], device: str, send: Send) -> WorkOutcome:
    """Do a request's training in `body["processes"]` processes.

    Args:
        device: torch's name of the device that was chosen; on CUDA, each process has one of its own.
        send: takes the first process's progress.

    Raises:
        HanseError: what the first of them that fails says; UNAVAILABLE naming one that dies without a word;
            INVALID_INPUT for more processes than GPUs; POLICY where the sandbox leaves them no loopback.
    """
    count = body["processes"]
    if device.startswith("cuda") and count > torch.cuda.device_count():
        raise invalid(
            "policy.limits.processes", count, f"at most {torch.cuda.device_count()}, the GPUs that torch sees"
        )
    _require_loopback(count)
    with tempfile.TemporaryDirectory(prefix=_SOCKET) as folder:
        said = _Said(body, send)
        with _listening(Path(folder) / _SOCKET, said):
            _launch(count, folder, said)
    if said.answer is None:
        raise HanseError(ErrorCode.INTERNAL, f"the {count} processes of the training ended, and none has answered")
    return outcome_of(said.answer, Path(body["output"]))


@dataclass(slots=True)
class _Said:
    """What the processes have said.

    Attributes:
        answer: the first one's.
        errors: by rank, in the order in which they came.
    """

    body: dict[str, Any]
    send: Send
    answer: dict[str, Any] | None = None
    errors: dict[int, HanseError] = field(default_factory=dict)

    def converse(self, connection: socket.socket) -> None:
        """Give a process the request, and take what it says until it ends."""
        with connection, connection.makefile("rb") as stream, suppress(OSError, HanseError):
            if (first := read_frame(stream)) is None:
                return
            rank = int(first["rank"])
            connection.sendall(pack(self.body))
            while (told := read_frame(stream)) is not None:
                self._take(rank, told)

    def _take(self, rank: int, told: dict[str, Any]) -> None:
        kind = told.get("kind")
        if kind == "error":
            self.errors.setdefault(rank, error_of(told))
        elif kind == "progress" and rank == 0:
            self.send(told)
        elif kind == "done" and rank == 0:
            self.answer = told


def _launch(count: int, folder: str, said: _Said) -> None:
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        run_id=Path(folder).name,
        rdzv_backend="c10d",
        rdzv_endpoint=f"{_HERE}:0",
        local_addr=_HERE,
        max_restarts=0,  # the agent has the work done again
        monitor_interval=_LOOK_S,
        logs_specs=DefaultLogsSpecs(log_dir=folder),
        signals_to_handle="SIGHUP",  # the others are the worker's own
        shutdown_timeout=_STOP_S,
    )
    try:
        elastic_launch(config, sys.executable)("-P", "-m", "hanse_datapod.worker.ranks", str(Path(folder) / _SOCKET))
    except ChildFailedError as error:
        raise _reason(error, said, count) from None


def _reason(error: ChildFailedError, said: _Said, count: int) -> HanseError:
    """What ended it: a process that died without a word, for the others then fail in waiting for it; else what the
    first has said that failed."""
    silent = {rank: failure.exitcode for rank, failure in error.failures.items() if rank not in said.errors}
    dead = {rank: status for rank, status in silent.items() if status != -signal.SIGTERM}  # which ends the others
    if said.errors and not dead:
        return next(iter(said.errors.values()))
    rank, status = next(iter((dead or silent).items()))
    return HanseError(
        ErrorCode.UNAVAILABLE,
        f"process {rank} of the {count} that train together ended (status {status}) before it answered",
        hint="a status of -9 mostly means that the machine ran out of memory; see the datapod's log",
    )


@contextmanager
def _listening(path: Path, said: _Said) -> Iterator[None]:
    """Within it, processes that connect to the socket are conversed with; afterwards all that they said has come."""
    talks: list[threading.Thread] = []
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as door:
        door.bind(str(path))
        door.listen()

        def accept() -> None:
            with suppress(OSError):  # the door is closed
                while True:
                    talk = threading.Thread(target=said.converse, args=(door.accept()[0],), daemon=True)
                    talks.append(talk)
                    talk.start()

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield
        finally:
            with suppress(OSError):
                door.shutdown(socket.SHUT_RDWR)
            accepting.join(_STOP_S)
            for talk in talks:  # the processes have ended, and with them their ends of the connections
                talk.join(_STOP_S)


def _require_loopback(count: int) -> None:
    try:
        with socket.socket(socket.AF_INET) as tried:
            tried.bind((_HERE, 0))
    except OSError:
        raise HanseError(
            ErrorCode.POLICY,
            f"the site's policy forbids it: limits.processes {count}: the processes speak over a loopback network, and "
            "the sandbox has none here",
            hint="let the machine give user namespaces, or set the policy's sandbox.network, or limits.processes: 1",
        ) from None
