"""The hub's part of a rehearsed round: the model, moved by the only site's update, and what the next round needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hanse_datapod.worker.port import extra_output
from hanse_schemas.job import Job

if TYPE_CHECKING:
    import numpy as np

    from hanse_fabric.tensors.layout import Layout
    from hanse_learning.in_memory import ServerState


class RehearsedRounds:
    """What a hub with one site would carry from round to round; the server's optimizer is the job's.

    Attributes:
        extras: files that the next round's task needs beside the model, by name.
    """

    def __init__(self, job: Job, model: Path) -> None:
        self.extras: dict[str, Path] = {}
        self._optimizer = dict(job.strategy.get("optimizer") or {})
        self._state: ServerState | None = None
        self._model = model

    def take(self, update: Path, extras: tuple[str, ...]) -> None:
        """Move the model, and each extra, by what the site has made."""
        from hanse_fabric.tensors.file import read_tensors, write_tensors

        layout, arrays = read_tensors(self._model)
        write_tensors(self._model, layout, self._moved(layout, arrays, read_tensors(update)[1]))
        for name in extras:
            layout, change = read_tensors(extra_output(update, name))
            before = read_tensors(self.extras[name])[1] if name in self.extras else None
            path = extra_output(self._model, name)
            summed = change if before is None else {entry: change[entry] + before[entry] for entry in change}
            write_tensors(path, layout, summed)
            self.extras[name] = path

    def _moved(
        self, layout: Layout, model: dict[str, np.ndarray], update: dict[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        from hanse_fabric.tensors.layout import Rule
        from hanse_learning import reduce
        from hanse_learning.site.entries import apply_update

        if self._optimizer.get("name", "none") == "none" or not layout.entries:
            return apply_update(model, update, layout)
        # The mean over one site is that site's value, whichever rule a buffer has.
        buffers = {e.name: "average" for e in layout if e.rule is not Rule.PARAMETER and e.numpy.kind == "f"}
        strategy = {"optimizer": self._optimizer}
        moved, self._state = reduce(strategy, model, [update], None, self._state, buffers=buffers)
        return dict(moved)
