"""A run from the hub to a tracker."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from hanse.exports.exported import ExportedModel, ExportedRun
from hanse.exports.wanted import TRACKERS, Wanted, check_wanted
from hanse_fabric.errors import ErrorCode, HanseError

if TYPE_CHECKING:
    from hanse.aio import AsyncRun


async def export_run(run: AsyncRun, wanted: Wanted) -> str:
    """Have a tracker keep a run, once: its settings, its metrics by round, and a model of it.

    Returns:
        Where it is there, in words.

    Raises:
        HanseError: INVALID_INPUT for what is unknown or does not fit together, for a run that has not ended, and for a
            folder that cannot be written; CONFLICT where the tracker has the run; NOT_FOUND where the version is not
            there; UNAVAILABLE where the tracker's package is not installed, or it refuses.
    """
    check_wanted(wanted)
    await run.refresh()
    if not run.view.ended:
        raise HanseError(ErrorCode.INVALID_INPUT, f"run {run.id} is {run.state}, expected one that has ended")
    history = await run.history()
    with TemporaryDirectory(prefix="hanse-export-") as folder:
        going = await _model(run, wanted.model, Path(folder))
        exported = ExportedRun(run.view, history, wanted.sites, going)
        where: str = await asyncio.to_thread(importlib.import_module(TRACKERS[wanted.to]).keep, exported, wanted)
        return where


async def _model(run: AsyncRun, which: str, folder: Path) -> ExportedModel | None:
    if which == "none":
        return None
    chosen = await (run.best() if which == "best" else run.model())
    file = await chosen.download(folder / "model.safetensors")
    return ExportedModel(chosen.view, file, await chosen.card())
