"""A job's run at one site, without a hub, and the evaluation of a model file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hanse_datapod.data.settings import DataSettings, split_of
from hanse_fabric.durable import write_durably
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.privacy import BandedMatrix
from hanse_fabric.names import derive_seed
from hanse_schemas.job import Job
from hanse_schemas.prepare import Prepare, completed_job
from hanse_schemas.schema import DataSchema, LearnableSchema, OpenSchema, TabularSchema, learnable

if TYPE_CHECKING:
    from hanse_datapod.data.load import SiteData
    from hanse_datapod.data.tables import SiteTable, SiteTables
    from hanse_datapod.rehearsal.site import RehearsedSite
    from hanse_datapod.worker.foreign.settings import ForeignSettings
    from hanse_learning.site.examples import Examples
    from hanse_workflows.memory import Conducted

Metrics = dict[str, dict[str, float]]
_ALONE = "rehearsal"


def rehearse(
    job: Job, data: Path | None, tests: list[Path], *, schema: DataSchema | None = None, code: Path | None = None,
    initial: Path | None = None, output: Path | None = None, told: Callable[[str], None] = lambda _text: None,
    foreign: ForeignSettings | None = None,
) -> Metrics:  # fmt: skip
    """Do the job's workflow with this site as its single participant, then evaluate the last model.

    The number of participants, their quorum and masks are not the job's, for the site is alone. A strategy that takes
    more updates than one becomes the mean.

    Args:
        data: training data; None: what the site code's `load()` gives.
        tests: test data; the run's own evaluations, by which it may stop, are on the first. None at all: a part of
            `data` is set aside, as a datapod does that is given one file.
        initial: file of the model that the job names as its `initial_model`.
        output: where the trained model is written; None: nowhere.
        told: is told in words what is done in another way than the job says.
        foreign: the interpreters in which code of other frameworks runs.

    Returns:
        Metrics by test file.

    Raises:
        HanseError: as the worker's tasks; INVALID_INPUT for a job that cannot be done; what else the run failed by.
    """
    from hanse_datapod.rehearsal.site import RehearsedSite
    from hanse_workflows.round_asks import config_of

    if output is not None and (output.is_dir() or not output.parent.is_dir()):
        raise invalid("output", str(output), "a file, in a folder that is there")
    known = learnable(schema or OpenSchema())
    job = completed_job(job, schema)
    with _schema_named(schema):
        parts = _parts(job, data, tests, known, code)
    examples = [part for found, _ in parts.values() for part in (found.train, found.test) if part is not None]
    submitted, job = job, _with_outputs(_alone(job, told), known, examples)
    first = _initial_model(job, initial)
    with tempfile.TemporaryDirectory(prefix="hanse-rehearsal-") as folder, _no_interpreter_left():
        sites = {
            path: RehearsedSite(
                Path(folder), found, known, code, tables, foreign,
                DataSettings(train=data, test=Path(path) if tests else None),
            )
            for path, (found, tables) in parts.items()
        }  # fmt: skip
        run = _conducted(job, submitted, schema, next(iter(sites.values())), first)
        if run.model is None or run.lineage is None:
            raise invalid("workflow", job.workflow, "a workflow that publishes a model")
        if output is not None:
            write_durably(output, run.model, mode=0o644)
        number = run.lineage.round
        seed = derive_seed(job.seed, number, _ALONE, "evaluate")
        config = config_of(run.job)
        return {path: site.evaluate(config, run.model, seed=seed, round=number) for path, site in sites.items()}


@contextmanager
def _schema_named(schema: DataSchema | None) -> Iterator[None]:
    """Where data do not fit, and no schema was given, none of a project is to be corrected: it is to be given."""
    try:
        yield
    except HanseError as error:
        if schema is not None or error.code is not ErrorCode.SCHEMA_MISMATCH:
            raise
        raise HanseError(
            error.code, error.message, found=error.found,
            hint="give the project's schema: --schema FILE, for without it every cell is to be a number; or correct "
            "the data",
        ) from None  # fmt: skip


@contextmanager
def _no_interpreter_left() -> Iterator[None]:
    """The interpreters that code of other frameworks has had started end with the block, not with this process."""
    from hanse_datapod.worker.foreign.interpreter import stop_all

    try:
        yield
    finally:
        stop_all()


def evaluate_file(
    model: Path, job: Job, tests: list[Path], *, schema: DataSchema | None = None, code: Path | None = None
) -> Metrics:
    """Evaluate a model file without adapting or personalizing it as sites would. Metrics by test file.

    Raises:
        HanseError: as the worker's tasks; INVALID_INPUT where the job keeps entries of the model at the sites.
    """
    from hanse_datapod.data.load import SiteData, read_test_examples
    from hanse_datapod.data.tables import SiteTables
    from hanse_datapod.rehearsal.site import RehearsedSite
    from hanse_workflows.round_asks import config_of

    known = learnable(schema or OpenSchema())
    job = completed_job(job, schema)
    tables, preparation = {}, {}
    if isinstance(job.prepare, Prepare):
        if job.prepare.fitted is None:
            raise invalid(
                "prepare.fitted", None, "what the run has found, without which its model sees other features",
                hint="a model's record has it; prepare: none where columns were seen as they are",
            )  # fmt: skip
        preparation = {"preparation": job.prepare.fitted.model_dump(mode="json")}
        tables = {str(path): _test_table(path, DataSettings(train=path), known) for path in tests}
        tested = {path: table.examples for path, table in tables.items()}
    else:
        tested = {str(path): read_test_examples(path, DataSettings(train=path), known) for path in tests}
    _require_whole(job)
    job = _with_outputs(job, known, list(tested.values()))
    config = {
        **preparation,
        "model": job.model,
        "train": {name: value for name, value in job.train.items() if name == "loss"},
        "code": None if job.code is None else job.code.model_dump(mode="json"),
        "evaluate": config_of(job)["evaluate"],
    }
    trained = _bytes(model, "model")
    with tempfile.TemporaryDirectory(prefix="hanse-rehearsal-") as folder:
        return {
            path: RehearsedSite(
                Path(folder),
                SiteData(test, test),
                known,
                code,
                SiteTables(tables[path], tables[path]) if path in tables else None,
            ).evaluate(config, trained, seed=0, round=1)
            for path, test in tested.items()
        }


def _parts(
    job: Job, data: Path | None, tests: list[Path], schema: LearnableSchema, code: Path | None
) -> dict[str, tuple[SiteData, SiteTables | None]]:
    """What is trained and tested on, by the test data's path; with the raw tables where the job prepares them."""
    from hanse_datapod.data.load import (
        SiteData,
        read_examples,
        read_site_data,
        read_site_table,
        read_site_tables,
        read_test_examples,
    )  # fmt: skip
    from hanse_datapod.data.tables import SiteTables

    if data is None and (code is None or tests):
        beside = ", though test data are: a load() gives both" if tests else ""
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"data: none are given{beside}",
            hint="give --data FILE; or --code FILE alone, whose load() gives all data",
        )  # fmt: skip
    parted = split_of(job.privacy)
    settings = DataSettings(kind="code", split=parted) if data is None else DataSettings(train=data, split=parted)
    # Code of another framework reads tables itself, and what is no number in them is its own matter.
    raw = isinstance(schema, TabularSchema) and (isinstance(job.prepare, Prepare) or job.reads_data_itself)
    if not tests or data is None:
        tables = read_site_tables(settings, schema) if raw and isinstance(schema, TabularSchema) else None
        if tables is None:
            found = read_site_data(settings, schema, code)
        else:
            found = SiteData(tables.train.examples, None if tables.test is None else tables.test.examples)
        if found.test is None or not len(found.test):
            raise invalid("tests", [], "test data: too few examples are there to set some aside")
        return {str(data or code): (found, tables)}
    if raw and isinstance(schema, TabularSchema):
        table = read_site_table(data, settings, schema)
        tested = {str(path): _test_table(path, settings, schema) for path in tests}
        return {
            path: (SiteData(table.examples, test.examples), SiteTables(table, test)) for path, test in tested.items()
        }
    train = read_examples(data, settings, schema)
    return {str(path): (SiteData(train, read_test_examples(path, settings, schema)), None) for path in tests}


def _test_table(path: Path, settings: DataSettings, schema: LearnableSchema) -> SiteTable:
    from hanse_datapod.data.load import read_site_table

    if not isinstance(schema, TabularSchema):
        raise invalid("schema.kind", schema.kind, "tabular, for a preparation")
    return read_site_table(path, settings, schema.for_tests)


def _conducted(
    job: Job, submitted: Job, schema: DataSchema | None, site: RehearsedSite, initial: bytes | None
) -> Conducted:
    """The run; where it fails because the site has failed, the site's own error."""
    from hanse_workflows import RunFailure
    from hanse_workflows.memory import conduct

    try:
        return conduct(job, {_ALONE: site}, submitted=submitted, schema=schema, initial=initial, sites_add_noise=True)
    except RunFailure as failure:
        raise site.failure or failure from None


def _alone(job: Job, told: Callable[[str], None]) -> Job:
    """The job, as it is done by a single participant. What that participant cannot do, it cannot do a second time."""
    from hanse_learning.server.config import check_strategy

    strategy, reduction = job.strategy, check_strategy(job.strategy).reduction
    if reduction.least() > 1:
        strategy = {**strategy, "reduction": {"name": "weighted_mean"}}
        told(
            f"strategy.reduction: {reduction.name} takes {reduction.least()} updates at least, a rehearsal has one: "
            "weighted_mean stands in for it"
        )
    alone = {"minimum": 1, "fraction": 1.0, "quorum": 1.0, "retries": 0}
    participants = job.participants.model_copy(update=alone)
    privacy = job.privacy
    if privacy is not None and privacy.matrix is not None:
        every = {"matrix": BandedMatrix(name="banded", bands=1), "min_separation": 1}
        privacy = privacy.model_copy(update=every)
        told("privacy.min_separation: a rehearsal has this site in every round, and noise that is not correlated")
    return job.model_copy(
        update={"participants": participants, "secure_aggregation": None, "strategy": strategy, "privacy": privacy}
    )  # fmt: skip


def _initial_model(job: Job, given: Path | None) -> bytes | None:
    if given is None:
        if job.initial_model is not None:
            raise invalid("initial", None, f"the file of the job's initial_model, {job.initial_model}")
        return None
    if job.initial_model is None:
        raise invalid("initial", str(given), "absent, as the job names no initial_model")
    return _bytes(given, "initial")


def _bytes(path: Path, field: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise HanseError(ErrorCode.NOT_FOUND, f"{field}: {path}: {error.strerror or error}") from None


def _require_whole(job: Job) -> None:
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


def _with_outputs(job: Job, schema: LearnableSchema, parts: list[Examples]) -> Job:
    """The job; where neither it nor a schema tells the number of classes, the labels of all files together do."""
    from hanse_learning.config import BUILT_IN

    name = job.model.get("name")
    labels = [int(part.y.max()) for part in parts if len(part) and part.y.dtype.kind == "i"]
    told = schema.kind != "open" and (schema.task == "regression" or schema.classes is not None)
    classified = job.train.get("loss") not in ("mse", "binary") and name != "linear"
    if told or not labels or not classified or name not in BUILT_IN or "outputs" in job.model:
        return job
    return job.model_copy(update={"model": {**job.model, "outputs": max(2, max(labels) + 1)}})
