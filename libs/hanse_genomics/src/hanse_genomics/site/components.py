"""Files in a site's folder of the run: its samples' components, which stay here for the regressions of the same run."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path

import numpy as np

from hanse_genomics.arrays import Floats
from hanse_genomics.site.columns import COMPONENTS
from hanse_genomics.site.step import SiteStudy


def write_components(site: SiteStudy, scores: Floats) -> None:
    """Keep a site's components, float64 (n, k), by the .fam file's order, where `site.columns` finds them.

    They are scaled such that the sum of squares over the samples of all cohorts is their number.
    """
    buffer = io.BytesIO()
    np.save(buffer, scores, allow_pickle=False)
    keep(site.state / COMPONENTS, buffer.getvalue())


def keep(path: Path, data: bytes) -> None:
    """Write a file all or nothing, whatever ends the process and however many threads write the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.partial")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
