"""A worker is two processes: the one that the agent started keeps the other, in which all work is done.

The keeper ends when that one ends, with its status, and nothing that it started stays behind. Its memory is what the
process had when it was divided, so this is done before libraries are loaded.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import NoReturn

from hanse_datapod.worker.sandbox import namespaces
from hanse_datapod.worker.sandbox.kernel import adopt_orphans, die_with_parent


def divide(*, wanted: bool, network: bool) -> bool:
    """Go on in another process, which this one keeps; whether that is in namespaces of its own.

    Args:
        wanted: whether the policy wants a sandbox; network: whether it leaves the process the datapod's network.
    """
    with suppress(PermissionError):  # it leads a session already
        os.setsid()
    die_with_parent(signal.SIGTERM)
    alone = wanted and namespaces.unshare(network=network)
    adopt_orphans()
    child = os.fork()
    if child:
        _keep(child, alone=alone)
    die_with_parent()
    return alone


def _keep(child: int, *, alone: bool) -> NoReturn:
    """Wait until the child ends, end what it has left, and end likewise. In a namespace, the kernel ends all of it."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: os.kill(child, signal.SIGKILL))
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(nothing, descriptor)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    ended = status = 0
    while ended != child:
        ended, status = os.waitpid(-1, 0)
    if not alone:
        _end_all_below()
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _end_all_below() -> None:
    import psutil  # here, for a keeper stays small until its end

    me = psutil.Process()
    while below := me.children(recursive=True):
        for each in below:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        with suppress(ChildProcessError):
            os.waitpid(-1, 0)
