"""Where a task's training goes on from when its process was killed: a file beside the one that it will write.

It is of this very task, whose id fixes model, settings and seed, and of the data as they are now. It stays at the site,
only the worker reads it, and it is removed with the task.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

import numpy as np

from hanse_datapod.worker.port import checkpoint_file
from hanse_datapod.worker.work.context import WorkContext
from hanse_fabric.errors import HanseError
from hanse_fabric.tensors.file import layout_like, read_tensors, write_tensors
from hanse_learning.site.site_privacy import check_site_privacy

EVERY_S = 60.0
"""A round that is done sooner writes none: what it has done is done again."""
_OF = "of"


class TaskCheckpoint:
    """See `hanse_learning.site.checkpoints.Checkpoints`.

    Args:
        path: of the file.
        of: what it must be of.
    """

    def __init__(self, path: Path, of: str) -> None:
        self._path, self._last = path, time.monotonic()
        self._of = np.frombuffer(hashlib.sha256(of.encode()).digest(), np.uint8)

    def read(self) -> dict[str, np.ndarray] | None:
        """The newest; None where there is none, or none that is whole and of this task and data."""
        if not self._path.exists():
            return None
        try:
            arrays = {name: np.array(array) for name, array in read_tensors(self._path)[1].items()}
        except (HanseError, OSError, ValueError):
            return None
        of = arrays.pop(_OF, None)
        return arrays if of is not None and np.array_equal(of, self._of) else None

    def due(self) -> bool:
        """Whether the last was a while ago."""
        return time.monotonic() - self._last >= EVERY_S

    def write(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Write it in place of the one before. A full disk costs the checkpoint, and nothing else."""
        whole = {**arrays, _OF: self._of}
        with suppress(HanseError, OSError):
            write_tensors(self._path, layout_like(whole), whole)
            self._path.chmod(0o600)
        self._last = time.monotonic()

    def remove(self) -> None:
        """The training is done."""
        self._path.unlink(missing_ok=True)


def checkpoint_of(work: WorkContext) -> TaskCheckpoint | None:
    """The task's; None where it has none: training by single examples' gradients draws its noise once, and several
    processes begin together."""
    private = check_site_privacy(work.config)
    if work.fingerprint is None or work.ranks is not None or (private and private.mechanism == "dp_sgd"):
        return None
    asked = [
        work.config, work.seed, work.round, work.trained, work.device, work.model and work.model.name,
        _version("hanse-learning"), _version("torch"), work.fingerprint(),
    ]  # fmt: skip
    return TaskCheckpoint(checkpoint_file(work.output), json.dumps(asked, sort_keys=True))


@cache
def _version(package: str) -> str:
    """Of what this process runs; it is read from a file of the package."""
    return version(package)
