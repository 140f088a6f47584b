"""A worker's process goes into its sandbox, before it has threads or anything of the site."""

from __future__ import annotations

import os
import resource
import tempfile
from contextlib import suppress
from pathlib import Path

from hanse_datapod.worker.sandbox import calls, landlock, namespaces
from hanse_datapod.worker.sandbox.kernel import gain_nothing
from hanse_datapod.worker.sandbox.libraries import SHARED_MEMORY, of_devices, of_python, of_the_system
from hanse_datapod.worker.sandbox.terms import Confinement, Reach


def enter(reach: Reach, scratch: Path, *, alone: bool) -> Confinement:
    """Close this process in as the policy says, and as far as the machine lets it; what it got.

    Args:
        scratch: a folder for temporary files, and its home.
        alone: whether it is in namespaces of its own (`keeper.divide`).
    """
    os.environ |= {"HOME": str(scratch), "TMPDIR": str(scratch)}
    tempfile.tempdir = str(scratch)
    return Confinement() if reach.policy.mode == "none" else _close(reach, scratch, alone=alone)


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
