"""The worker of such a datapod: it hands each task to the loop, and makes the answer as of site code."""

from __future__ import annotations

import asyncio
import hashlib
import os
import queue
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hanse_datapod.data.settings import Split
from hanse_datapod.pipeline.in_hand import Answered, InHand
from hanse_datapod.worker.port import (
    TRAINING_KINDS,
    DataState,
    DataSummary,
    DeviceReport,
    OnProgress,
    WorkOutcome,
    WorkRequest,
)
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.errors import ErrorCode, HanseError, unfit
from hanse_fabric.messages import TaskKind
from hanse_schemas.schema import DataSchema, OpenSchema

if TYPE_CHECKING:
    from torch import nn

    from hanse_datapod.data.load import SiteData
    from hanse_learning.site.examples import Examples

_LABEL = "own pipeline"


class PipelineWorker:
    """A `Worker` whose work is the loop's.

    Args:
        data: files and folders of the data, which tell when these change; none: each start of the process counts as if
            they had, for nobody can say otherwise.
        examples: that the site trains on.
        hides: whether no update leaves but under masks, or with noise. A first model has neither, and a loop that has
            trained may give what it has learnt for one: it is asked for none then.
    """

    kinds = TRAINING_KINDS
    device = _LABEL

    def __init__(self, data: Sequence[Path], examples: int, *, hides: bool = False) -> None:
        self._data, self._examples, self._hides = tuple(data), examples, hides
        self._trained = False
        self._unknown = os.urandom(32).hex()
        self._known: tuple[str, str] | None = None
        self._offered: queue.SimpleQueue[InHand | None] = queue.SimpleQueue()

    def require(self, config: Mapping[str, Any]) -> None:
        """Which device it takes is the loop's own matter."""

    async def rest(self) -> None:
        """There is nothing to give back."""

    async def check_data(  # the loop reads its data itself
        self, schema: DataSchema, split: Split = "shuffled",  # noqa: ARG002
    ) -> DataSummary:  # fmt: skip
        fingerprint = await asyncio.to_thread(self._fingerprint)
        return DataSummary(self._examples, 0, fingerprint, DeviceReport(label=_LABEL))

    async def work(self, request: WorkRequest, on_progress: OnProgress) -> WorkOutcome:
        _check(request)
        if request.kind is TaskKind.INITIALIZE and self._hides and self._trained:
            raise HanseError(
                ErrorCode.POLICY, "a first model: this site's own loop has trained since it was started, and what it "
                "gives would leave without mask or noise",
                hint="name an initial_model in the job, or start the loop again",
            )  # fmt: skip
        self._trained |= request.kind is TaskKind.TRAIN
        hands = _Hands(request, self._offered)
        work = asyncio.ensure_future(asyncio.to_thread(self._made, request, hands, on_progress))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            hands.withdraw()
            await asyncio.wait({work})
            if not work.cancelled():
                work.exception()  # that it was withdrawn
            raise

    def next_task(self) -> InHand | None:
        """Wait for the next task; None: there are no more."""
        while True:
            found = self._offered.get()
            if found is None or found.open:
                return found

    def end(self) -> None:
        """Whoever waits for a task hears that there are no more."""
        self._offered.put(None)

    def _made(self, request: WorkRequest, hands: _Hands, on_progress: OnProgress) -> WorkOutcome:
        from hanse_datapod.worker.work.context import WorkContext
        from hanse_datapod.worker.work.execute import by_code
        from hanse_datapod.worker.work.private import privately
        from hanse_learning.site.site_privacy import check_site_privacy

        work = WorkContext(
            kind=request.kind, config=request.config, seed=request.seed, round=request.round, model=request.model,
            output=request.output, state=request.state, schema=OpenSchema(), code=None, data=self._untold,
            on_progress=on_progress, trained=request.trained, device=_LABEL,
        )  # fmt: skip
        began = SYSTEM_CLOCK.monotonic()
        private = check_site_privacy(work.config) if work.kind is TaskKind.TRAIN else None
        if private is None:
            made = by_code(work, hands, built_in=False)
        else:
            made = privately(work, private, lambda work: by_code(work, hands, built_in=False))
        state = DataState(self._fingerprint())
        return replace(made, seconds=SYSTEM_CLOCK.monotonic() - began, code_digest=None, data=state)

    def _untold(self) -> SiteData:
        """As many examples as the site says, of which nothing is known here."""
        from hanse_datapod.data.load import SiteData
        from hanse_learning.site.examples import Examples

        def of(count: int) -> Examples:
            return Examples(np.empty((count, 0), np.float32), np.zeros(count, np.int64))

        return SiteData(of(self._examples), of(1))

    def _fingerprint(self) -> str:
        if not self._data:
            return self._unknown
        files = [path for given in self._data for path in _files(given)]
        version = "|".join(f"{path}:{(stat := path.stat()).st_mtime_ns}:{stat.st_size}" for path in files)
        if self._known is None or self._known[0] != version:
            digest = hashlib.sha256()
            for path in files:
                with path.open("rb") as file:
                    content = hashlib.file_digest(file, "sha256").hexdigest()
                digest.update(f"{path.name}:{content}\n".encode())
            self._known = version, digest.hexdigest()
        return self._known[1]


class _Hands:
    """The loop as code with the functions that are asked of site code (`site_code.Code`)."""

    path = Path(_LABEL)
    digest = ""

    def __init__(self, request: WorkRequest, offered: queue.SimpleQueue[InHand | None]) -> None:
        self._request, self._offered = request, offered
        self._ends = SYSTEM_CLOCK.monotonic() + request.time_limit
        self._in_hand: InHand | None = None
        self._withdrawn = False

    def has(self, name: str) -> bool:  # noqa: ARG002 - the loop answers every kind of task, or says that it cannot
        return True

    def initialize(self, config: dict[str, Any]) -> dict[str, np.ndarray]:
        return _model_of(self._asked("initialize", config, None))

    def train(
        self, model: nn.Module | dict[str, np.ndarray], data: Examples, config: dict[str, Any]  # noqa: ARG002
    ) -> tuple[dict[str, np.ndarray], int, dict[str, float]]:  # fmt: skip
        answered = self._asked("train", config, _arrays(model))
        return _model_of(answered), answered.examples, answered.metrics

    def train_along(self, model: nn.Module | dict[str, np.ndarray], data: Examples, config: dict[str, Any]) -> None:
        """One process trains."""

    def test(
        self, model: nn.Module | dict[str, np.ndarray], data: Examples, config: dict[str, Any]  # noqa: ARG002
    ) -> tuple[int, dict[str, float]]:  # fmt: skip
        answered = self._asked("evaluate", config, _arrays(model))
        return answered.examples, answered.metrics

    def withdraw(self) -> None:
        """Whoever waits for the loop waits no more."""
        self._withdrawn = True
        if self._in_hand is not None:
            self._in_hand.withdraw()

    def _asked(self, kind: str, config: dict[str, Any], model: dict[str, np.ndarray] | None) -> Answered:
        request = self._request
        told = {name: value for name, value in config.items() if name in request.config and name != "privacy"}
        if config.get("frozen"):
            told["frozen"] = config["frozen"]
        self._in_hand = InHand(kind, request.round, request.seed, told, model, self._ends)
        if self._withdrawn:
            self._in_hand.withdraw()
        self._offered.put(self._in_hand)
        return self._in_hand.wait()


def _check(request: WorkRequest) -> None:
    """Refuse what a loop of the team's own cannot give.

    Raises:
        HanseError: POLICY naming the job's setting.
    """
    evaluate = request.config.get("evaluate") or {}
    asked = ""
    if request.kind is TaskKind.PREPARE:
        asked = "prepare, of columns that the datapod reads itself"
    elif request.extras or request.exchange is not None or request.config.get("info"):
        asked = "train.algorithm or strategy, which exchange more than the model"
    elif request.kind is TaskKind.EVALUATE and evaluate.get("counts") is not None:
        asked = "evaluate.metrics, which are counted by the datapod's own evaluation"
    if asked:
        raise HanseError(
            ErrorCode.POLICY, f"the job asks for {asked}; this site has a pipeline of its own (hanse.join)",
            hint="leave it out of the job, or run a datapod at this site",
        )  # fmt: skip


def _arrays(model: nn.Module | dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    if not isinstance(model, dict):
        raise TypeError("a pipeline has its own model")
    return {name: np.array(array) for name, array in model.items()}


def _model_of(answered: Answered) -> dict[str, np.ndarray]:
    if answered.model is None:
        raise TypeError("an answer without a model")
    return answered.model


def _files(given: Path) -> list[Path]:
    """A file, or all files of a folder.

    Raises:
        HanseError: NOT_FOUND.
    """
    if given.is_dir():
        return sorted(path for path in given.rglob("*") if path.is_file())
    if not given.exists():
        raise unfit(f"data {given.name}: no such file or folder", str(given), code=ErrorCode.NOT_FOUND)
    return [given]
