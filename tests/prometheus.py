"""Prometheus and promtool (Debian's package `prometheus`, or the folder named by HANSE_PROMETHEUS), where they are."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

WHY_NOT = "no Prometheus here: apt-get install prometheus, or HANSE_PROMETHEUS=folder with prometheus and promtool"


def program(name: str) -> str | None:
    """The path of `prometheus` or `promtool`; None where it is not installed."""
    folder = os.environ.get("HANSE_PROMETHEUS")
    found = str(Path(folder) / name) if folder else shutil.which(name)
    return found if found and Path(found).is_file() else None
