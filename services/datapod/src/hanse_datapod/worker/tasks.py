"""What a task does: initialize, train or evaluate, by a built-in trainer or by site code."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from hanse_datapod.data.load import SiteData
from hanse_datapod.worker.local_state import read_local, write_local
from hanse_datapod.worker.port import SPARE, WORKED
from hanse_datapod.worker.site_code import SiteCodeFile, load_code
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages import TaskKind
from hanse_fabric.schema import DataSchema
from hanse_fabric.tensors.file import read_tensors, write_tensors
from hanse_fabric.tensors.layout import Entry, Layout, Rule, dtype_name
from hanse_learning.config import BUILT_IN, check_model, check_train
from hanse_learning.site.entries import KEEP_LOCAL, Entries, arrays_of, entries_of, load, update_of, views_of
from hanse_learning.site.evaluation import evaluate
from hanse_learning.site.examples import Examples, Problem, pose
from hanse_learning.site.models import build
from hanse_learning.site.site_privacy import SitePrivacy, check_site_privacy, privatize, require_parameters
from hanse_learning.site.training import make_repeatable, train


@dataclass(frozen=True, slots=True)
class WorkContext:
    """A request, with `data` reading the site's data (once) when they are needed. See `WorkRequest`."""

    kind: TaskKind
    config: dict[str, Any]
    seed: int
    round: int
    model: Path | None
    output: Path
    state: Path
    schema: DataSchema
    code: Path | None
    data: Callable[[], SiteData]
    on_progress: Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class Done:
    """What came of it; `wrote` says whether `output` was written."""

    wrote: bool
    examples: int
    metrics: dict[str, float]
    code_digest: str | None = None


def execute(work: WorkContext) -> Done:
    """Do the work.

    Raises:
        HanseError: see `Worker.work`.
    """
    if work.kind not in WORKED:
        raise invalid("task.kind", work.kind.value, "work for a worker: initialize, train or evaluate")
    make_repeatable(work.seed % 2**63)
    np.random.seed(work.seed % 2**32)
    code = load_code(work.code, work.config["code"]) if work.config.get("code") else None
    built_in = dict(work.config.get("model") or {}).get("name") in BUILT_IN
    if code is not None:
        return _by_code(work, code, built_in=built_in)
    if work.kind is TaskKind.INITIALIZE:
        module, _, entries = _module(work, _examples_or_none(work))
        write_tensors(work.output, entries.travelling, _only(arrays_of(module), entries.travelling))
        return Done(True, 0, {})
    if work.kind is TaskKind.EVALUATE:
        examples = _test(work)
        module, problem, entries = _module(work, examples)
        _receive(work, module, entries)
        return Done(False, len(examples), evaluate(module, examples, problem))
    examples = work.data().train
    module, problem, entries = _module(work, examples)
    received = _receive(work, module, entries)
    config = check_train(work.config.get("train") or {})
    private = check_site_privacy(work.config)
    if private is not None and private.mechanism == "dp_sgd":
        from hanse_learning.site.dp_sgd import train_privately  # torch.func: only where it is needed

        metrics = train_privately(module, examples, config, problem, private.dp_sgd(), work.on_progress)
    else:
        metrics = train(module, examples, config, problem, work.seed, _quiet(work) if private else work.on_progress)
    module.zero_grad(set_to_none=True)  # the module stays for the next task, its gradients need not
    # The module's own memory becomes the update: whatever task comes next loads its every value first.
    trained = views_of(module)
    write_local(work.state, work.round, entries.local, trained)
    update = update_of(received, trained, entries.travelling, consume=True)
    if private is not None:
        update, metrics = _made_private(update, metrics, entries.travelling, private)
    write_tensors(work.output, entries.travelling, update, over=work.output.with_name(SPARE))
    return Done(True, len(examples), metrics)


def _module(work: WorkContext, examples: Examples | None) -> tuple[nn.Module, Problem, Entries]:
    config = check_model(work.config.get("model") or {})
    loss = dict(work.config.get("train") or {}).get("loss")
    problem = pose(work.schema, examples, loss=loss, inputs=config.inputs, outputs=config.outputs)
    kept = KEEP_LOCAL in config.buffers.values()  # these begin with their initial values
    if work.kind is TaskKind.INITIALIZE or work.config.get("code") or kept:
        module = build(config, problem, seed=work.seed)
    else:
        module = _reused(config.model_dump_json(), problem)
    return module, problem, entries_of(module, config.buffers)


@lru_cache(maxsize=1)
def _reused(config: str, problem: Problem) -> nn.Module:
    """A module whose every value is loaded before its use: drawing 25 million weights anew takes 0.3 s a task."""
    return build(check_model(json.loads(config)), problem)


def _receive(work: WorkContext, module: nn.Module, entries: Entries) -> dict[str, np.ndarray]:
    if work.model is None:
        raise invalid("model", None, f"a tensor file, which {work.kind.value} needs")
    _, arrays = read_tensors(work.model)
    load(module, arrays, entries.travelling)
    # Evaluation comes after the round's training; a repeated training starts from where it started the first time.
    before = work.round if work.kind is TaskKind.TRAIN else work.round + 1
    local = read_local(work.state, before, entries.local)
    if local is not None:
        load(module, local, entries.local)
    return arrays


def _examples_or_none(work: WorkContext) -> Examples | None:
    """The data, only where the schema leaves the model's shape open: the first model shall not depend on the site."""
    if work.schema.kind == "open" or (work.schema.task == "classification" and work.schema.classes is None):
        return work.data().train
    return None


def _test(work: WorkContext) -> Examples:
    examples = work.data().test
    if examples is None or not len(examples):
        raise invalid("test data", None, "a test file or a test fraction above 0, which evaluation needs")
    return examples


def _by_code(work: WorkContext, code: SiteCodeFile, *, built_in: bool) -> Done:
    config = {**work.config, "seed": work.seed, "round": work.round}
    if work.kind is TaskKind.INITIALIZE:
        if built_in:
            fresh, _, typed = _module(work, _examples_or_none(work))
            arrays, layout = _only(arrays_of(fresh), typed.travelling), typed.travelling
        else:
            arrays = code.initialize(config)
            layout = Layout.of(_entry(name, array) for name, array in arrays.items())
        write_tensors(work.output, layout, arrays)
        return Done(True, 0, {}, code.digest)
    if work.model is None:
        raise invalid("model", None, f"a tensor file, which {work.kind.value} needs")
    layout, arrays = read_tensors(work.model)
    examples = _test(work) if work.kind is TaskKind.EVALUATE else work.data().train
    given: nn.Module | dict[str, np.ndarray] = {name: array.copy() for name, array in arrays.items()}
    entries: Entries | None = None
    if built_in:
        given, _, entries = _module(work, examples)
        _receive(work, given, entries)
    if work.kind is TaskKind.EVALUATE:
        with torch.no_grad():
            count, metrics = code.test(given, examples, config)
        return Done(False, count, metrics, code.digest)
    private = check_site_privacy(work.config)
    if private is not None and private.mechanism == "dp_sgd":
        raise invalid("privacy.mechanism", "dp_sgd", "a mechanism on the update, which site code needs")
    trained, count, metrics = code.train(given, examples, config)
    if entries is not None:
        write_local(work.state, work.round, entries.local, trained)
        trained = _only(trained, layout)
    _check_same(layout, trained)
    update = update_of(arrays, trained, layout)
    if private is not None:
        update, metrics = _made_private(update, metrics, layout, private)
    write_tensors(work.output, layout, update)
    return Done(True, count, metrics, code.digest)


def _made_private(
    update: dict[str, np.ndarray], metrics: dict[str, float], layout: Layout, private: SitePrivacy
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """The update with clipping and noise; of the metrics, those that the data have no part in."""
    if private.mechanism == "dp_sgd":
        require_parameters(layout)
        made = update
    else:
        made = privatize(update, layout, private)
    return made, {name: value for name, value in metrics.items() if name == "steps"}


def _quiet(work: WorkContext) -> Callable[[float, str], None]:
    """Progress without the loss, which nothing was paid for."""
    return lambda fraction, _text: work.on_progress(fraction, "training privately")


def _entry(name: str, array: np.ndarray) -> Entry:
    rule = Rule.PARAMETER if array.dtype.kind == "f" else Rule.KEEP_NEWEST
    return Entry(name, dtype_name(array.dtype), tuple(array.shape), rule)


def _only(arrays: dict[str, np.ndarray], layout: Layout) -> dict[str, np.ndarray]:
    return {entry.name: arrays[entry.name] for entry in layout if entry.name in arrays}


def _check_same(layout: Layout, trained: dict[str, np.ndarray]) -> None:
    expected = {entry.name: entry for entry in layout}
    odd = sorted(expected.keys() ^ trained.keys())
    if odd:
        side = "is missing" if odd[0] in expected else "is not in the model"
        raise _bad_return(f"entry {odd[0]} {side}")
    for name, entry in expected.items():
        array = trained[name]
        if array.dtype != entry.numpy or tuple(array.shape) != entry.shape:
            raise _bad_return(
                f"entry {name} is {array.dtype}{list(array.shape)}, {entry.numpy}{list(entry.shape)} was expected"
            )
        if array.dtype.kind == "f" and not bool(np.isfinite(array).all()):
            raise _bad_return(f"entry {name} has values that are not finite")


def _bad_return(what: str) -> HanseError:
    return HanseError(
        ErrorCode.TRAINING_FAILED,
        f"site code: train() returned another model than it was given: {what}",
        hint="return the same entries with the same shapes and dtypes; see docs/site-code.md",
    )
