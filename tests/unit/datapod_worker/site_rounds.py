"""One site's files for the rounds of a run, worked off without a process, an agent or a hub."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from hanse_datapod.data.load import SiteData
from hanse_datapod.worker.port import WorkOutcome, extra_output
from hanse_datapod.worker.work.context import WorkContext
from hanse_datapod.worker.work.execute import execute
from hanse_fabric.messages import TaskKind
from hanse_fabric.tensors.file import read_tensors, write_tensors
from hanse_learning.site.examples import Examples
from hanse_schemas.schema import ArraySchema, DataSchema

SCHEMA = ArraySchema(shape=(5,), classes=3)
MLP = {"name": "mlp", "hidden": [6]}


def examples(seed: int = 0) -> Examples:
    y = np.arange(40) % 3
    x = np.random.default_rng(seed).normal(size=(40, 5)) + 3 * np.eye(3, 5)[y]
    return Examples(x.astype(np.float32), y)


class Site:
    """One site's files for a run, and its received model; `code` is the text of site code."""

    def __init__(
        self,
        folder: Path,
        *,
        schema: DataSchema = SCHEMA,
        data: Examples | None = None,
        code: str = "",
        **config: Any,
    ) -> None:
        self.folder, self.schema = folder, schema
        folder.mkdir(exist_ok=True)
        self.data = data or examples()
        self.config: dict[str, Any] = {"model": MLP} | config
        self.control: Path | None = None
        self.fingerprint: str | None = None
        self.code: Path | None = None
        if code:
            self.code = folder / "code.py"
            self.code.write_text(code)
            self.config["code"] = {"name": "code", "digest": hashlib.sha256(code.encode()).hexdigest()}

    def do(self, kind: TaskKind, number: int, *, trained: int | None = None, output: str = "update") -> WorkOutcome:
        extras = {"control": self.control} if self.control is not None else {}
        work = WorkContext(
            kind, self.config, 100 + number, number, None if kind is TaskKind.INITIALIZE else self.folder / "model",
            self.folder / output, self.folder / "state", self.schema, self.code, lambda: SiteData(self.data, self.data),
            lambda _done, _text: None, extras, trained, fingerprint=self._fingerprint if self.fingerprint else None,
        )  # fmt: skip
        return execute(work)

    def _fingerprint(self) -> str:
        return str(self.fingerprint)

    def begin(self) -> Site:
        self.do(TaskKind.INITIALIZE, 0, output="model")
        return self

    def train(self, number: int, *, trained: int | None = None) -> WorkOutcome:
        return self.do(TaskKind.TRAIN, number, trained=trained)

    def evaluate(self, number: int, *, trained: int | None = None) -> WorkOutcome:
        return self.do(TaskKind.EVALUATE, number, trained=trained)

    def count(self) -> None:
        """Move the model by half of the last update, as where two sites counted and the other one changed nothing."""
        layout, model = read_tensors(self.folder / "model")
        update = self.update
        moved = {
            e.name: model[e.name] + update[e.name] / 2 if e.rule == "parameter" else update[e.name].copy()
            for e in layout
        }
        write_tensors(self.folder / "model", layout, moved)
        extra = extra_output(self.folder / "update", "control")
        if extra.exists():
            shutil.copy(extra, self.folder / "control")
            self.control = self.folder / "control"

    @property
    def update(self) -> dict[str, np.ndarray]:
        return read_tensors(self.folder / "update")[1]

    @property
    def sent(self) -> bytes:
        extra = extra_output(self.folder / "update", "control")
        return (self.folder / "update").read_bytes() + (extra.read_bytes() if extra.exists() else b"")

    def kept(self, number: int) -> dict[str, np.ndarray]:
        return read_tensors(self.folder / "state" / f"local-{number}.safetensors")[1]

    @property
    def rounds(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "state").glob("*"))
