"""The one site of a rehearsal: what the worker's process does for a task, done in this process on the given data."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hanse_datapod.privacy.metrics import covered_metrics
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import Task, TaskKind
from hanse_workflows.memory import Made

if TYPE_CHECKING:
    from hanse_datapod.data.load import SiteData
    from hanse_datapod.data.settings import DataSettings
    from hanse_datapod.data.tables import SiteTables
    from hanse_datapod.worker.foreign.settings import ForeignSettings
    from hanse_datapod.worker.port import WorkOutcome
    from hanse_learning.pooled import Counts
    from hanse_schemas.schema import LearnableSchema


class RehearsedSite:
    """A `MemorySite`, which adds its noise by itself.

    Args:
        tables: what the data are prepared from, where the job prepares; `data` have the targets alone then.
        folder: for files of tasks, and what the site keeps from round to round.
        foreign: the interpreters in which code of other frameworks runs.
        settings: where the data lie, which such code reads itself.

    Attributes:
        failure: why the last task failed; None where it did not.
    """

    def __init__(
        self, folder: Path, data: SiteData, schema: LearnableSchema, code: Path | None,
        tables: SiteTables | None = None, foreign: ForeignSettings | None = None, settings: DataSettings | None = None,
    ) -> None:  # fmt: skip
        from hanse_datapod.worker.work.modules import blank_module

        self._received, self._made, self._state = (folder / name for name in ("received", "made", "state"))
        self._data, self._schema, self._code = data, schema, code
        self._tables = None if tables is None else lambda: tables
        self._foreign, self._settings = foreign, settings
        self._blank = lru_cache(maxsize=1)(blank_module)
        self.failure: HanseError | None = None

    def work(self, task: Task, objects: Mapping[str, bytes]) -> Made:
        self.failure = None
        extras = {name: self._file(name, data) for name, data in objects.items()}
        model = extras.pop("model", None)
        try:
            covered = covered_metrics(task)
            told = self._privacy(task, model) | ({} if covered is None else covered.told)
            config = task.config | ({"privacy": told} if told else {})
            done = self._do(task.kind, config, task.seed, task.round, model, extras=extras, trained=task.trained)
            if covered is not None:
                done = covered.noisy(done)
        except HanseError as error:
            self.failure = error
            raise
        update = None if done.update is None else done.update.read_bytes()
        changes = {name: path.read_bytes() for name, path in done.extras.items()}
        return Made(update, done.examples, done.metrics, changes, done.info, done.code_digest, done.counted)

    def evaluate(self, config: dict[str, Any], model: bytes, *, seed: int, round: int) -> dict[str, float]:  # noqa: A002
        """A model's metrics on the test data, with what the site has kept of the rounds up to `round`; without noise,
        for they are told to who has the data."""
        from hanse_learning.pooled.layout import counts_in, told_of, without_noise

        counts = counts_in(config)
        if counts is not None and counts.scale is not None:
            counts = without_noise(counts)
            config = config | {"evaluate": config["evaluate"] | {"counts": told_of(counts)}}
        done = self._do(TaskKind.EVALUATE, config, seed, round, self._file("model", model))
        return done.metrics if counts is None or not done.counted else done.metrics | _counted(counts, done.counted)

    def _file(self, name: str, data: bytes) -> Path:
        self._received.mkdir(exist_ok=True)
        path = self._received / name
        path.unlink(missing_ok=True)  # what was read from the former file may still be mapped
        path.write_bytes(data)
        return path

    def _privacy(self, task: Task, model: Path | None) -> dict[str, Any]:
        """What the worker is told of the job's privacy: this site is alone, so its noise is all that a sum would have.

        Central noise is the reduction's.
        """
        if task.privacy is None or task.privacy.privacy.placement == "central":
            return {}
        if task.kind is TaskKind.PREPARE:
            from hanse_datapod.privacy.preparation import preparation_noise, told_of

            whole = task.privacy.privacy.model_copy(update={"placement": "local", "noise": None})
            alone = task.model_copy(update={"privacy": task.privacy.model_copy(update={"privacy": whole})})
            return told_of(preparation_noise(alone), task)
        if task.kind is not TaskKind.TRAIN:
            return {}
        from hanse_datapod.privacy.charges import numbers_of
        from hanse_learning.site.private_terms import terms_of_work

        train = self._data.train
        noise, told = terms_of_work(
            task.privacy, task.participant, task.config, examples=len(train),
            coordinates=None if model is None else partial(numbers_of, model),
            units=None if train.whose is None else train.units,
        )  # fmt: skip
        return told | {"scale": noise.scale}

    def _do(
        self, kind: TaskKind, config: dict[str, Any], seed: int, round: int, model: Path | None, *,  # noqa: A002
        extras: Mapping[str, Path] | None = None, trained: int | None = None,
    ) -> WorkOutcome:  # fmt: skip
        from hanse_datapod.worker.foreign.settings import ForeignSettings
        from hanse_datapod.worker.work.context import WorkContext
        from hanse_datapod.worker.work.execute import execute
        from hanse_learning.site.sums import Alone

        return execute(
            WorkContext(
                kind, config, seed, round, model, self._made, self._state, self._schema, self._code,
                lambda: self._data, lambda _fraction, _text: None, extras=extras or {}, trained=trained, sums=Alone(),
                blank=self._blank, tables=self._tables, foreign=self._foreign or ForeignSettings(),
                settings=self._settings,
            )
        )  # fmt: skip


def _counted(counts: Counts, words: str) -> dict[str, float]:
    """The metrics of what was counted."""
    from hanse_fabric.tensors.words import unpack_words
    from hanse_learning.pooled.derive import pooled

    return pooled(counts, unpack_words(words, counts.words, field="counted")).metrics
