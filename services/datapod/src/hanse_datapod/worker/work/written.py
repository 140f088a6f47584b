"""What a round's training leaves: an update that travels, encoded where the job says so, and what stays at the site."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from hanse_datapod.worker.work.context import WorkContext
from hanse_datapod.worker.work.site_state import SiteState, write_state
from hanse_fabric.tensors.file import write_tensors
from hanse_fabric.tensors.layout import Layout
from hanse_learning.codecs.at_site import LEFT_OUT, LOST, site_codec

Arrays = Mapping[str, np.ndarray]


def write_round(
    work: WorkContext, layout: Layout, update: Callable[[bool], Arrays], kept: Mapping[str, Arrays], begun: SiteState,
    *, over: Path | None = None,
) -> str:  # fmt: skip
    """Write the update, and what the site keeps for its next round. That is on the disk when this returns; the update
    is not yet: the agent sees to it (`answers.plain`).

    Args:
        update: makes it; told whether over the memory of what was trained, which is then not used any more.
        kept: by group.
        begun: what the round began with.
        over: of `write_tensors`.

    Returns:
        A note for the owner, or "".
    """
    codec = site_codec(work.config)
    if codec is None:
        # Before the update is made over the memory of what may be kept.
        write_state(work.state, work.round, kept, begun)
        write_tensors(work.output, layout, update(True), over=over, sync=False)
        return ""
    left = codec.write(work.output, layout, update(False), begun.groups, seed=work.seed)
    write_state(work.state, work.round, {**kept, **left}, begun)
    lost = codec.error_feedback and begun.lost and LEFT_OUT not in begun.groups
    return LOST if lost else ""
