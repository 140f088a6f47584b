"""A worker's process goes into its sandbox, before it has threads or anything of the site.

It is two processes from then on: the one that the agent started keeps the other, in which all work is done. The keeper
ends when that one ends, with its status, and nothing that it started stays behind.
"""

from __future__ import annotations

import os
import resource
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import psutil

from hanse_datapod.worker.sandbox import calls, landlock, namespaces
from hanse_datapod.worker.sandbox.kernel import adopt_orphans, die_with_parent, gain_nothing
from hanse_datapod.worker.sandbox.libraries import SHARED_MEMORY, of_devices, of_python, of_the_system
from hanse_datapod.worker.sandbox.terms import Confinement, Reach


def enter(reach: Reach, scratch: Path) -> Confinement:
    """Go on in a process that is closed in as the policy says, and as far as the machine lets it; what it got.

    Args:
        scratch: a folder for temporary files, and its home.
    """
    with suppress(PermissionError):  # it leads a session already
        os.setsid()
    die_with_parent(signal.SIGTERM)
    wanted = reach.policy.mode != "none"
    alone = wanted and namespaces.unshare(network=reach.policy.network)
    adopt_orphans()
    child = os.fork()
    if child:
        _keep(child, alone=alone)
    die_with_parent()
    os.environ |= {"HOME": str(scratch), "TMPDIR": str(scratch)}
    tempfile.tempdir = str(scratch)
    return _close(reach, scratch, alone=alone) if wanted else Confinement()


def _close(reach: Reach, scratch: Path, *, alone: bool) -> Confinement:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    writable = [folder for folder in (*sorted(reach.write), scratch) if folder.is_dir()]
    if alone:
        with suppress(OSError):
            namespaces.close_disk(writable, services=reach.policy.network)
        namespaces.own_processes()
    gain_nothing()
    files, version = False, landlock.version()
    if version:
        allowed = [(path, landlock.READ) for path in (*of_the_system(), *of_python(writable), *sorted(reach.read))]
        allowed += [(path, landlock.DEVICE) for path in of_devices()]
        allowed += [(folder, landlock.WRITE) for folder in (*writable, SHARED_MEMORY)]
        with suppress(OSError):
            landlock.restrict(allowed)
            files = True
    filtered = False
    if calls.known():
        families = calls.INTERNET if alone or reach.policy.network else calls.LOCAL
        with suppress(OSError):
            calls.restrict(families, truncate=version >= landlock.TRUNCATES_SINCE)
            filtered = True
    return Confinement(files, filtered or reach.policy.network, alone)


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
    me = psutil.Process()
    while below := me.children(recursive=True):
        for each in below:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        with suppress(ChildProcessError):
            os.waitpid(-1, 0)
