"""A run as TensorBoard's event files, by TensorBoard's own writer; neither torch nor TensorFlow is needed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import summary_v2 as hparams
from tensorboard.plugins.text import summary_v2 as text
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from hanse_fabric.errors import ErrorCode, HanseError

if TYPE_CHECKING:
    from hanse.exports.exported import ExportedRun
    from hanse.exports.wanted import Wanted


def keep(exported: ExportedRun, wanted: Wanted) -> str:
    """Write event files into `<into>/<run>`, which are whole or not there; see `hanse.exports.export_run`."""
    folder = Path(wanted.into or "runs") / exported.view.run
    if folder.exists():
        raise HanseError(ErrorCode.CONFLICT, f"{folder}: it is there already", hint="delete it, or name another folder")
    unfinished = folder.with_name(f".{exported.view.run}.unfinished")
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        _write(exported, unfinished)
        unfinished.replace(folder)
    except OSError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"{folder}: it cannot be written: {error.strerror}") from None
    return f"{folder}: tensorboard --logdir {folder.parent}"


def _write(exported: ExportedRun, folder: Path) -> None:
    writer = EventFileWriter(str(folder))
    begun = exported.view.created_at.timestamp()
    settings = {name: _plain(value) for name, value in exported.settings.items()}
    for summary in (
        hparams.hparams_pb(settings, trial_id=exported.view.run, start_time_secs=begun),
        *(text.text_pb(name, said) for name, said in exported.origin.items()),
    ):
        writer.add_event(Event(wall_time=begun, step=0, summary=summary))
    for point in exported.points():
        values = [Summary.Value(tag=name, simple_value=value) for name, value in point.metrics.items()]
        writer.add_event(Event(wall_time=point.at.timestamp(), step=point.round, summary=Summary(value=values)))
    writer.close()


def _plain(value: object) -> object:
    """What the settings' plugin takes: numbers, truth, text."""
    return value if isinstance(value, bool | int | float | str) else str(value)
