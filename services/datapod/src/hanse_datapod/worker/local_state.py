"""Buffers that stay at the site, in its state folder, one file a round.

A round that is repeated after a crash starts from the file of the round before, as it did the first time.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hanse_fabric.tensors.file import read_tensors, write_tensors
from hanse_fabric.tensors.layout import Layout

_KEPT = 2


def read_local(state: Path, before: int, layout: Layout) -> dict[str, np.ndarray] | None:
    """The newest buffers from rounds earlier than `before`; None where nothing is kept or no round was trained yet."""
    if not layout.entries:
        return None
    earlier = [number for number in _rounds(state) if number < before]
    return read_tensors(_path(state, earlier[-1]))[1] if earlier else None


def write_local(state: Path, round_number: int, layout: Layout, arrays: dict[str, np.ndarray]) -> None:
    """Keep a round's buffers; all but the newest few rounds before it are forgotten."""
    if not layout.entries:
        return
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_tensors(_path(state, round_number), layout, {entry.name: arrays[entry.name] for entry in layout})
    for number in [n for n in _rounds(state) if n <= round_number][:-_KEPT]:
        _path(state, number).unlink(missing_ok=True)


def _path(state: Path, round_number: int) -> Path:
    return state / f"local-{round_number}.safetensors"


def _rounds(state: Path) -> list[int]:
    names = (path.name.split("-")[1].split(".")[0] for path in state.glob("local-*.safetensors"))
    return sorted(int(name) for name in names if name.isdigit())
