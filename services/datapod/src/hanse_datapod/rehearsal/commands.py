"""The commands `rehearse`, a job run at one site without a hub, and `evaluate`, a model file on test files.

Both print one JSON object with `--json`: `{"tests": {file: metrics}, ...}`; of a study it says what would leave.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from hanse_datapod.data.settings import DataSettings
from hanse_datapod.rehearsal.training import Metrics, evaluate_file, rehearse
from hanse_datapod.worker.foreign.settings import ForeignSettings
from hanse_fabric.errors import invalid
from hanse_schemas.job import Job, read_job_file
from hanse_schemas.schema import DataSchema


def add_rehearse(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands `rehearse` and `evaluate`; each sets `run` to what it does with the parsed arguments."""
    rehearsal = commands.add_parser("rehearse", help="train a job here, on these data, without a hub")
    rehearsal.add_argument("job", type=Path, help="the job file")
    rehearsal.add_argument("--data", type=Path, help="training data; of a study the prefix of .bed; "
                           "none: --code has a load() that gives them")  # fmt: skip
    rehearsal.add_argument("--phenotypes", type=Path, help="of a study: file of phenotypes")
    rehearsal.add_argument("--covariates", type=Path, help="of a study: file of covariates")
    rehearsal.add_argument("--policy", type=Path, help="the site's policy file: of a study, that may be against it; of "
                           "Flower's and NVFlare's code, whose interpreter it names")  # fmt: skip
    rehearsal.add_argument("--code", type=Path, help="site code that the job names")
    rehearsal.add_argument("--initial", type=Path, help="file of the job's initial_model, where it names one")
    rehearsal.add_argument("--output", type=Path, help="write the trained model here")
    rehearsal.set_defaults(run=_rehearse)
    evaluation = commands.add_parser("evaluate", help="evaluate a model file on test data")
    evaluation.add_argument("model", type=Path, help="the tensor file")
    evaluation.add_argument("--job", type=Path, required=True, help="the job file that it was trained by")
    evaluation.add_argument("--code", type=Path, help="site code that the job names")
    evaluation.set_defaults(run=_evaluate)
    for parser in (rehearsal, evaluation):
        parser.add_argument("--test", type=Path, required=parser is evaluation, help="test data; "
                            "else a rehearsal sets some aside, as a datapod does")  # fmt: skip
        parser.add_argument("--also", type=Path, nargs="+", default=[], help="more test data, reported apart")
        parser.add_argument(
            "--schema", type=Path, help="the project's schema (YAML, JSON); else what the data look like"
        )
        parser.add_argument("--json", action="store_true", help="one JSON object on the last line")


def _foreign(job: Job, given: argparse.Namespace) -> ForeignSettings | None:
    """The interpreters that the site's policy names, where the job's code needs one."""
    from hanse_datapod.policy.site_policy import load_policy

    if not job.has_foreign_code:
        return None
    if given.policy is None:
        raise invalid("--policy", None, "the site's policy file, which names the interpreter of the job's code")
    foreign = load_policy(given.policy).site_code.foreign
    foreign.require()
    return foreign


def _schema(path: Path | None) -> DataSchema | None:
    if path is None:
        return None
    from pydantic import TypeAdapter, ValidationError

    from hanse_fabric.errors import ErrorCode, HanseError
    from hanse_fabric.messages import explain
    from hanse_fabric.text_files import read_yaml

    try:
        schema: DataSchema = TypeAdapter(DataSchema).validate_python(read_yaml(path, "schema file"))
    except ValidationError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"schema file {path}: {explain(error, DataSchema)}") from None
    return schema


def _rehearse(given: argparse.Namespace) -> None:
    job = read_job_file(given.job)
    if job.study is not None:
        if given.data is None:
            raise invalid("--data", None, "the prefix of .bed, .bim and .fam, for a study")
        _rehearse_study(job, given)
        return
    if given.test is None and given.also:
        raise invalid("--also", [str(path) for path in given.also], "more test data, beside --test")
    tests = [] if given.test is None else [given.test, *given.also]
    metrics = rehearse(
        job, given.data, tests, schema=_schema(given.schema), code=given.code,
        initial=given.initial, output=given.output, told=lambda text: print(f"note: {text}", file=sys.stderr),
        foreign=_foreign(job, given),
    )  # fmt: skip
    _print(metrics, as_json=given.json)


def _rehearse_study(job: Job, given: argparse.Namespace) -> None:
    from hanse_datapod.policy.site_policy import load_policy
    from hanse_datapod.rehearsal.study import rehearse_study

    data = DataSettings(train=given.data, kind="plink", phenotypes=given.phenotypes, covariates=given.covariates)
    found = rehearse_study(job, data, load_policy(given.policy))
    if given.json:
        sys.stdout.write(json.dumps(found.report) + "\n")
    else:
        sys.stdout.write("\n".join(found.lines()) + "\n")


def _evaluate(given: argparse.Namespace) -> None:
    job = read_job_file(given.job)
    tests = [given.test, *given.also]
    _print(evaluate_file(given.model, job, tests, schema=_schema(given.schema), code=given.code), as_json=given.json)


def _print(tests: Metrics, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps({"tests": tests}) + "\n")
        return
    for name, metrics in tests.items():
        shown = "  ".join(f"{key} {value:.4f}" for key, value in metrics.items())
        sys.stdout.write(f"{name}: {shown}\n")
