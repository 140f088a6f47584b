"""docs/own-pipeline.md: its loop answers each kind of task, its job is taken, its command has the example's options."""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from pydantic import TypeAdapter
from sklearn.linear_model import SGDClassifier

import hanse
from hanse.arrays import by_name, in_form
from hanse.site_task import SiteTask
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_schemas.job import check_job
from hanse_schemas.prepare import completed_job
from hanse_schemas.schema import DataSchema, OpenSchema
from hanse_workflows.submission import check_submitted

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "own-pipeline.md").read_text()
LOOP, UPLOAD = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(JOB,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
ROWS = re.findall(r"^\| (`\{.*) \| (goes|refused) \|", PAGE, re.MULTILINE)


class Told(SiteTask):
    """A task of one kind, which keeps the answer."""

    round, seed, config, seconds_left = 1, 3, {}, 60.0

    def __init__(self, kind, model):
        self._kind, self._given, self.answer = kind, model, None

    @property
    def kind(self):
        return self._kind

    def fail(self, reason):
        self.answer = reason

    def _arrays(self):
        return self._given

    def _push(self, model, examples, metrics):
        self.answer = (model, examples, metrics)

    def _report(self, examples, metrics):
        self.answer = (examples, metrics)


def test_the_loop_of_the_page_answers_each_kind_of_task() -> None:
    made = np.random.default_rng(1)
    x, y = made.normal(size=(40, 3)), np.arange(40) % 3
    estimator = SGDClassifier(loss="log_loss", random_state=0).partial_fit(x, y, classes=np.arange(3))
    form = [estimator.coef_, estimator.intercept_]
    tasks = [Told("initialize", None), Told("train", by_name(form)), Told("evaluate", by_name(form))]

    def join(*args, **named):
        inspect.signature(hanse.join).bind(*args, **named)
        return SimpleNamespace(tasks=lambda: tasks)

    around = {"hanse": SimpleNamespace(join=join), "token": "join_x", "estimator": estimator}
    exec(LOOP, {**around, "x": x, "y": y, "test_x": x[:9], "test_y": y[:9]})  # noqa: S102 - the page is ours
    first, trained, told = (task.answer for task in tasks)
    assert (first[0].keys(), first[1]) == ({"0", "1"}, 0)
    assert (trained[1], trained[2]) == (40, {"loss": 0.3})
    assert [array.shape for array in in_form(trained[0], form)] == [(3, 3), (3,)]
    assert (told[0], list(told[1])) == (9, ["accuracy"])


def test_the_job_of_the_page_is_taken_and_its_first_model_is_uploaded() -> None:
    check_submitted(check_job(yaml.safe_load(JOB)), schema=OpenSchema())
    seen = []
    project = SimpleNamespace(upload_model=lambda model: by_name(model) and "ab" * 32, run=seen.append)
    exec(UPLOAD, {"project": project, "np": np})  # noqa: S102 - the page is ours
    check_submitted(check_job({**seen[0], "participants": {"minimum": 2}}), schema=OpenSchema())


TABLE = TypeAdapter[DataSchema](DataSchema).validate_python(
    {"kind": "tabular", "features": [{"name": "age"}], "target": "ill", "classes": 2}
)


@pytest.mark.parametrize(("cell", "said"), ROWS, ids=[cell for cell, _ in ROWS])
@pytest.mark.parametrize("schema", [OpenSchema(), TABLE], ids=["open", "table"])
def test_the_table_says_what_is_taken_and_what_is_refused(cell: str, said: str, schema: DataSchema) -> None:
    given = re.findall(r"`(\{[^`]*)`", cell)
    assert given
    for one in given:
        job = {**yaml.safe_load(JOB), "secure_aggregation": None, **yaml.safe_load(one)}

        def submit(job: dict[str, object] = job) -> None:
            check_submitted(completed_job(check_job(job), schema), schema=schema)

        if said == "goes":
            submit()
            continue
        with pytest.raises(HanseError) as caught:
            submit()
        assert caught.value.code is ErrorCode.INVALID_INPUT, one
        [(section, _)] = yaml.safe_load(one).items()
        assert section in caught.value.message or "dp_sgd" in caught.value.message, one


def test_rows_of_both_kinds_are_there_and_noise_of_all_sites_goes_with_masks() -> None:
    assert {said for _, said in ROWS} == {"goes", "refused"}
    (noisy,) = [yaml.safe_load(one) for one in re.findall(r"`(\{weighting[^`]*)`", PAGE)]
    noisy["privacy"]["placement"] = "distributed"
    check_submitted(check_job({**yaml.safe_load(JOB), **noisy}), schema=OpenSchema())


def test_what_a_loop_does_not_do_is_refused_with_masks_too_and_says_what_to_do() -> None:
    for name in ("scaffold", "fedtan", "ditto"):
        job = check_job({**yaml.safe_load(JOB), "train": {"algorithm": {"name": name}}})
        with pytest.raises(
            HanseError, match=rf"train\.algorithm: .*{name}.*loops of kind own train by themselves"
        ) as caught:
            check_submitted(job, schema=OpenSchema())
        assert "leave out code" in (caught.value.hint or "")


def test_the_command_of_the_page_has_the_options_of_the_example() -> None:
    (command,) = re.findall(r"^    python (sklearn_digits\.py .*)$", PAGE, re.MULTILINE)
    name, *words = shlex.split(command)
    source = (ROOT / "examples" / "pipelines" / name).read_text()
    for option in (word[2:] for word in words if word.startswith("--")):
        assert f'"{option}"' in source or f'"--{option}"' in source
    for example in re.findall(r"`(\w+\.py)`", PAGE):
        assert (ROOT / "examples" / "pipelines" / example).exists()
