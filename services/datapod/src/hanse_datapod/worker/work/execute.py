"""What a task does: initialize, train or evaluate, by a built-in trainer or by site code, on a built-in model or on one
of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from hanse_datapod.worker.foreign.code import ForeignCode, load_foreign
from hanse_datapod.worker.foreign.interpreter import end_runs
from hanse_datapod.worker.foreign.rows import rows_alone
from hanse_datapod.worker.port import TRAINING_KINDS, WorkOutcome, require_no_pipeline
from hanse_datapod.worker.work import built_in
from hanse_datapod.worker.work.built_in import examples_or_none, in_layout, test_examples
from hanse_datapod.worker.work.context import WorkContext
from hanse_datapod.worker.work.modules import GivenModel, module_of, receive
from hanse_datapod.worker.work.own_model import code_config, first_own_model, receive_own
from hanse_datapod.worker.work.preparing import measure, on_prepared
from hanse_datapod.worker.work.private import cut_of, privately
from hanse_datapod.worker.work.site_code import Code, load_code, seed_generators
from hanse_datapod.worker.work.site_state import KEPT, LOCAL
from hanse_datapod.worker.work.written import write_round
from hanse_fabric.errors import ErrorCode, HanseError, invalid, unfit
from hanse_fabric.messages import TaskKind
from hanse_fabric.tensors.file import write_tensors
from hanse_learning.config import BUILT_IN, check_train
from hanse_learning.site.entries import arrays_of, update_of
from hanse_learning.site.private_round import made_private
from hanse_learning.site.site_privacy import check_site_privacy
from hanse_learning.site.training import make_repeatable


def execute(work: WorkContext) -> WorkOutcome:
    """Do the work.

    Raises:
        HanseError: see `Worker.work`.
    """
    if work.kind not in TRAINING_KINDS:
        raise invalid("task.kind", work.kind.value, "work for a worker: initialize, prepare, train or evaluate")
    if work.kind is TaskKind.PREPARE:
        return measure(work)
    work = on_prepared(work)
    if work.config.get("code"):
        seed_generators(work.seed)
    else:
        make_repeatable(work.seed % 2**63)
        np.random.seed(work.seed % 2**32)
    private = check_site_privacy(work.config) if work.kind is TaskKind.TRAIN else None
    # What several processes make is made private here once: whichever of them fails.
    if private is None or work.ranks is not None:
        return _done(work)
    return privately(work, private, _done)


def _done(work: WorkContext) -> WorkOutcome:
    if work.divided is not None:
        reason = undivided(work.config)
        if not reason:
            return work.divided()
        made = _done(replace(work, divided=None))
        return replace(made, note="; ".join(part for part in (made.note, f"trained in one process: {reason}") if part))
    code = _code_of(work)
    if isinstance(code, ForeignCode):
        work = rows_alone(work)
    if code is not None:
        return by_code(work, code, built_in=dict(work.config.get("model") or {}).get("name") in BUILT_IN)
    return _BY_CONFIGURATION[work.kind](work)


_BY_CONFIGURATION = {
    TaskKind.INITIALIZE: built_in.initialize, TaskKind.TRAIN: built_in.train, TaskKind.EVALUATE: built_in.evaluate
}  # fmt: skip


def _code_of(work: WorkContext) -> Code | None:
    require_no_pipeline(work.config)
    named = work.config.get("code")
    if named and named.get("kind", "hanse") != "hanse":
        return load_foreign(work.code, named, work.foreign, work.settings, str(work.state))
    end_runs()
    return load_code(work.code, named) if named else None


def undivided(config: Mapping[str, Any]) -> str:
    """Why several processes cannot take the steps of a training together; "" where they can."""
    if named := config.get("code"):
        # Hanse's own site code divides its work itself.
        foreign = named.get("kind", "hanse") != "hanse"
        return f"code of {named['kind']} is one process" if foreign else ""
    algorithm = check_train(config.get("train") or {}).algorithm
    return "" if algorithm.divides else f"a step of algorithm {algorithm.name} is not a mean over its batch alone"


def by_code(work: WorkContext, code: Code, *, built_in: bool) -> WorkOutcome:
    """Initialize, train or evaluate by the code's functions.

    Raises:
        HanseError: as the code's functions; INVALID_INPUT for rules of `model.state` that do not fit the model;
            TRAINING_FAILED where they return another model than they were given, or change what is frozen.
    """
    if work.kind is TaskKind.INITIALIZE:
        return _initialize(work, code, built_in=built_in)
    if work.kind is TaskKind.EVALUATE:
        cut_of(work, by_code=True)
    examples = test_examples(work) if work.kind is TaskKind.EVALUATE else work.data().train
    given = receive(work, examples)[2] if built_in else receive_own(work, code)
    config = {**code_config(work), "frozen": sorted(given.entries.frozen)}
    if isinstance(code, ForeignCode):
        code.kept = {name: array.copy() for name, array in given.state.groups.get(KEPT, {}).items()}
    if work.kind is TaskKind.EVALUATE:
        with torch.no_grad():
            count, metrics = code.test(given.model, examples, config)
        return WorkOutcome(None, count, metrics, code_digest=code.digest, note=given.note)
    private = check_site_privacy(work.config)
    if private is not None and private.mechanism == "dp_sgd":
        raise invalid("privacy.mechanism", "dp_sgd", "a mechanism on the update, which site code needs")
    if not work.speaks:
        code.train_along(given.model, examples, config)
        return WorkOutcome(None, len(examples), {})
    trained, count, metrics = code.train(given.model, examples, config)
    _check_trained(given, trained)
    travelling, local = given.entries.travelling, given.entries.local
    change = update_of(given.arrays, trained, travelling)
    if private is not None:
        change, metrics = made_private(change, travelling, private), private.covered(metrics)
    kept = {LOCAL: in_layout(trained, local)} if local.entries else {}
    if isinstance(code, ForeignCode):
        kept[KEPT] = code.kept
    lost = write_round(work, travelling, lambda _consume: change, kept, given.state)
    note = "; ".join(part for part in (given.note, lost) if part)
    return WorkOutcome(work.output, count, metrics, code_digest=code.digest, note=note)


def _initialize(work: WorkContext, code: Code, *, built_in: bool) -> WorkOutcome:
    if built_in:
        fresh, _, typed = module_of(work, examples_or_none(work))
        layout, arrays = typed.travelling, in_layout(arrays_of(fresh), typed.travelling)
    else:
        layout, arrays = first_own_model(work, code)
    write_tensors(work.output, layout, arrays)
    return WorkOutcome(work.output, 0, {}, code_digest=code.digest)


def _check_trained(given: GivenModel, trained: Mapping[str, np.ndarray]) -> None:
    """Check that the code returned the entries that it was given, finite, and frozen ones as they were."""
    expected = {entry.name: entry for entry in (*given.entries.travelling, *given.entries.local)}
    odd = sorted(expected.keys() ^ trained.keys())
    if odd:
        if odd[0] in expected:
            raise _bad_return(f"entry {odd[0]} is missing", ", ".join(trained))
        raise _bad_return("an entry is not in the model", odd[0])
    for name, entry in expected.items():
        array = trained[name]
        if array.dtype != entry.numpy or tuple(array.shape) != entry.shape:
            raise _bad_return(
                f"entry {name}: {entry.numpy}{list(entry.shape)} was expected", f"{array.dtype}{list(array.shape)}"
            )
        if array.dtype.kind == "f" and not bool(np.isfinite(array).all()):
            raise _bad_return(f"entry {name} has values that are not finite")
        if name in given.entries.frozen and not np.array_equal(array, given.arrays[name]):
            raise _bad_return(
                f"entry {name} has changed, and model.state keeps it frozen",
                hint="leave what config['frozen'] names as it is; batch norm's statistics change in model.train()",
            )


def _bad_return(
    what: str, found: str = "", *, hint: str = "return the same entries with the same shapes and dtypes"
) -> HanseError:  # fmt: skip
    """Names and shapes that the received model has not are of the code's making: of the data, maybe."""
    return unfit(
        f"site code: train() returned another model than it was given: {what}",
        found, code=ErrorCode.TRAINING_FAILED, hint=f"{hint}; see docs/site-code.md",
    )  # fmt: skip
