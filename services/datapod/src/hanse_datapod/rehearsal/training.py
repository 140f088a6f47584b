"""A job's rounds of training at one site, without a hub, and the evaluation of a model file."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hanse_datapod.data.settings import DataSettings
from hanse_datapod.rehearsal.rounds import RehearsedRounds
from hanse_fabric.messages import PrivacyTerms, TaskKind
from hanse_fabric.names import derive_seed
from hanse_schemas.job import Job
from hanse_schemas.schema import DataSchema, LearnableSchema, OpenSchema, learnable

if TYPE_CHECKING:
    from hanse_datapod.worker.work.execute import WorkReport
    from hanse_learning.site.examples import Examples

Metrics = dict[str, dict[str, float]]


def rehearse(
    job: Job, data: Path, tests: list[Path], *, schema: DataSchema | None = None, code: Path | None = None,
    output: Path | None = None,
) -> Metrics:  # fmt: skip
    """Train for the job's rounds as a single participant would, then evaluate. The server's optimizer is the job's; its
    reduction has one update to reduce.

    Returns:
        Metrics by test file.

    Raises:
        HanseError: as the worker's tasks.
    """
    from hanse_datapod.data.load import read_examples
    from hanse_fabric.tensors.file import read_tensors, write_tensors

    known = learnable(schema or OpenSchema())
    settings = DataSettings(train=data)
    train = read_examples(data, settings, known)
    tested = {str(path): read_examples(path, settings, known) for path in tests}
    config = _config(job, known, [train, *tested.values()])
    with tempfile.TemporaryDirectory(prefix="hanse-rehearsal-") as folder:
        model, update = Path(folder) / "model", Path(folder) / "update"
        _work(TaskKind.INITIALIZE, config, derive_seed(job.seed, "initialize"), 0, None, model, known, code, train)
        hub = RehearsedRounds(job, model)
        for number in range(1, job.rounds + 1):
            seed = derive_seed(job.seed, number, "rehearsal", "train")
            told = config | _private(job, config, number, len(train), model)
            done = _work(TaskKind.TRAIN, told, seed, number, model, update, known, code, train, extras=hub.extras)
            hub.take(update, done.extras)
        if output is not None:
            layout, arrays = read_tensors(model)
            write_tensors(output, layout, arrays)
        return {
            name: _work(
                TaskKind.EVALUATE, config, 0, job.rounds + 1, model, update, known, code, train, test=test
            ).metrics
            for name, test in tested.items()
        }


def evaluate_file(
    model: Path, job: Job, tests: list[Path], *, schema: DataSchema | None = None, code: Path | None = None
) -> Metrics:
    """Evaluate a model file without adapting or personalizing it as sites would. Metrics by test file.

    Raises:
        HanseError: as the worker's tasks; INVALID_INPUT where the job keeps entries of the model at the sites.
    """
    from hanse_datapod.data.load import read_examples

    known = learnable(schema or OpenSchema())
    tested = {str(path): read_examples(path, DataSettings(train=path), known) for path in tests}
    _require_whole(job)
    config = _config(job, known, list(tested.values()))
    config["train"] = {name: value for name, value in job.train.items() if name == "loss"}
    return {
        name: _work(TaskKind.EVALUATE, config, 0, 1, model, model, known, code, test, test=test).metrics
        for name, test in tested.items()
    }


def _require_whole(job: Job) -> None:
    from hanse_fabric.errors import ErrorCode, HanseError
    from hanse_learning.config import check_model, state_rules
    from hanse_learning.config.checks import has_own_model
    from hanse_learning.config.state import own_state_rules

    own = has_own_model(job)
    rules = own_state_rules(job.model) if own else state_rules(check_model(job.model), job.train)
    if any(rule.keep == "local" for rule in rules):
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            "job: entries of its model stay at the sites, so that a published file is no whole model",
            hint="see the sites' own evaluation in hanse run show, or rehearse the job",
        )


def _private(job: Job, config: dict[str, Any], number: int, examples: int, model: Path) -> dict[str, Any]:
    """What the worker is told of the job's privacy: it adds all the noise, that of hub and other sites, too."""
    if job.privacy is None:
        return {}
    from hanse_datapod.privacy.terms import terms_of_work

    terms = PrivacyTerms(privacy=job.privacy, rounds=job.rounds, round=number, active=1)
    noise, told = terms_of_work(terms, "rehearsal", config, examples=examples, model=model)
    return {"privacy": told | {"mechanism": noise.mechanism, "clip": noise.clip, "scale": noise.scale}}


def _config(job: Job, schema: LearnableSchema, parts: list[Examples]) -> dict[str, Any]:
    """The task's config. Where no schema tells the number of classes, the labels of all files together do."""
    from hanse_learning.config import BUILT_IN

    model = dict(job.model)
    labels = [int(part.y.max()) for part in parts if len(part) and part.y.dtype.kind == "i"]
    told = schema.kind != "open" and (schema.task == "regression" or schema.classes is not None)
    classified = job.train.get("loss") not in ("mse", "binary") and model.get("name") != "linear"
    if not told and labels and classified and model.get("name") in BUILT_IN and "outputs" not in model:
        model["outputs"] = max(2, max(labels) + 1)
    code = job.code.model_dump() if job.code is not None else None
    return {"model": model, "train": job.train, "code": code}


def _work(
    kind: TaskKind, config: dict[str, Any], seed: int, number: int, model: Path | None, output: Path,
    schema: LearnableSchema, code: Path | None, train: Examples, *, test: Examples | None = None,
    extras: Mapping[str, Path] | None = None,
) -> WorkReport:  # fmt: skip
    from hanse_datapod.data.load import SiteData
    from hanse_datapod.worker.work.execute import WorkContext, execute
    from hanse_learning.site.sums import Alone

    return execute(
        WorkContext(
            kind, config, seed, number, model, output, output.parent / "state", schema, code,
            lambda: SiteData(train, test), lambda _fraction, _text: None, extras=extras or {}, sums=Alone(),
        )
    )  # fmt: skip
