"""Work by site code, on a built-in model or on one of its own."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from hanse_datapod.worker.work.built_in import examples_or_none, only, test_examples
from hanse_datapod.worker.work.context import Done, WorkContext
from hanse_datapod.worker.work.modules import Received, given_model, module_of, receive
from hanse_datapod.worker.work.private import made_private
from hanse_datapod.worker.work.site_code import SiteCodeFile
from hanse_datapod.worker.work.site_state import LOCAL, write_state
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages import TaskKind
from hanse_fabric.tensors.file import read_tensors, write_tensors
from hanse_fabric.tensors.layout import Entry, Layout, Rule, dtype_name
from hanse_learning.site.entries import arrays_of, update_of
from hanse_learning.site.site_privacy import check_site_privacy


def by_code(work: WorkContext, code: SiteCodeFile, *, built_in: bool) -> Done:
    """Initialize, train or evaluate by the code's functions.

    Raises:
        HanseError: as the code's functions; TRAINING_FAILED where they return another model than they were given.
    """
    config = {**work.config, "seed": work.seed, "round": work.round, "device": work.device}
    if work.kind is TaskKind.INITIALIZE:
        if built_in:
            fresh, _, typed = module_of(work, examples_or_none(work))
            arrays, layout = only(arrays_of(fresh), typed.travelling), typed.travelling
        else:
            arrays = code.initialize(config)
            layout = Layout.of(_entry(name, array) for name, array in arrays.items())
        write_tensors(work.output, layout, arrays)
        return Done(True, 0, {}, code.digest)
    layout, arrays = read_tensors(given_model(work))
    examples = test_examples(work) if work.kind is TaskKind.EVALUATE else work.data().train
    given: nn.Module | dict[str, np.ndarray] = {name: array.copy() for name, array in arrays.items()}
    received: Received | None = None
    if built_in:
        received = receive(work, examples)
        given = received.module
    note = received.note if received is not None else ""
    if work.kind is TaskKind.EVALUATE:
        with torch.no_grad():
            count, metrics = code.test(given, examples, config)
        return Done(False, count, metrics, code.digest, note=note)
    private = check_site_privacy(work.config)
    if private is not None and private.mechanism == "dp_sgd":
        raise invalid("privacy.mechanism", "dp_sgd", "a mechanism on the update, which site code needs")
    trained, count, metrics = code.train(given, examples, config)
    if received is not None:
        local = received.entries.local
        write_state(work.state, work.round, {LOCAL: only(trained, local)} if local.entries else {}, received.state)
        trained = only(trained, layout)
    _check_same(layout, trained)
    update = update_of(arrays, trained, layout)
    if private is not None:
        update, metrics = made_private(update, metrics, layout, private)
    write_tensors(work.output, layout, update)
    return Done(True, count, metrics, code.digest, note=note)


def _entry(name: str, array: np.ndarray) -> Entry:
    rule = Rule.PARAMETER if array.dtype.kind == "f" else Rule.KEEP_NEWEST
    return Entry(name, dtype_name(array.dtype), tuple(array.shape), rule)


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
