"""Trained models as ONNX files: they take raw columns, or features where nothing is prepared, and give probabilities
or a regression's values."""

from __future__ import annotations

import copy
import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.wheels import to_install
from hanse_learning.portable.plain_layers import plain
from hanse_learning.preparation.apply import apply
from hanse_learning.preparation.cells import cells_of
from hanse_learning.site.losses import class_logits

if TYPE_CHECKING:
    from hanse_learning.portable.trained_model import TrainedModel

FEATURES, PROBABILITIES, VALUES = "features", "probabilities", "values"
OUTPUTS = (PROBABILITIES, VALUES)
"""Names of the graph's input, where it takes features, and of its output."""
_TRIED = 8
_TOLERANCE = 1e-5


def write_onnx(model: TrainedModel, path: Path) -> Path:
    """Write the model to `path`, after onnxruntime has given what torch gives for random examples.

    The graph takes `features` (n, *shape), in the model's dtype (float32 where it convolves), or where raw columns are
    prepared one input (n,) of each (`onnx_preparation`); it gives `probabilities` (n, classes) or `values` (n,). Its
    metadata tell the columns and the features in their order, the classes, the task, the model's digest, project, run
    and version, and what raw columns become.

    Raises:
        HanseError: UNAVAILABLE without the packages of `hanse[onnx]`; INVALID_INPUT where the task is not known,
            and for a path that cannot be written; INTERNAL where the two do not agree.
    """
    if path.is_dir():
        raise invalid("path", str(path), "a file, such as model.onnx")
    try:
        return _written(model, path)
    except OSError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"{path}: it cannot be written: {error.strerror}") from None


def _written(model: TrainedModel, path: Path) -> Path:
    try:
        import onnx
        import onnxruntime

        from hanse_learning.portable.onnx_preparation import put_before, raw_inputs, tried
    except ImportError as error:
        raise _not_installed(error) from None
    whole = _Answering(plain(copy.deepcopy(model.module)), model.task)
    # ONNX runtimes convolve in single precision alone.
    dtype = torch.float32 if _convolves(whole) else model.dtype
    examples = torch.from_numpy(np.random.default_rng(0).normal(size=(_TRIED, *model.problem.shape))).to(dtype)
    expected = _Answering(model.module, model.task)(examples.to(model.dtype)).detach().numpy()
    unverified = path.with_name(path.name + ".unverified")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with warnings.catch_warnings():
            # By tracing: it takes a tenth of the time of torch's newer exporter, and what comes out is held against
            # torch below.
            warnings.simplefilter("ignore")
            torch.onnx.export(
                whole.to(dtype).eval(), (examples,), str(unverified), dynamo=False, input_names=[FEATURES],
                output_names=[whole.named], dynamic_axes={FEATURES: {0: "n"}, whole.named: {0: "n"}},
            )  # fmt: skip
        made = onnx.load(unverified)
        given = {FEATURES: examples.numpy()}
        if model.preparation is not None:
            put_before(made, model.preparation, OUTPUTS)
            cells = tried(model.preparation)
            given = raw_inputs(model.preparation, cells, OUTPUTS)
            seen = apply(model.preparation, cells).astype(np.float32)
            expected = _Answering(model.module, model.task)(torch.from_numpy(seen).to(model.dtype)).detach().numpy()
        for name, value in _about(model).items():
            entry = made.metadata_props.add()
            entry.key, entry.value = name, value
        onnx.checker.check_model(made, full_check=True)
        unverified.write_bytes(made.SerializeToString())
        session = onnxruntime.InferenceSession(str(unverified), providers=["CPUExecutionProvider"])
        for count in (len(expected), 1):
            [answer] = session.run([whole.named], {name: values[:count] for name, values in given.items()})
            _agree(answer, expected[:count])
        unverified.replace(path)
    finally:
        unverified.unlink(missing_ok=True)
    return path


def inputs_of(model: TrainedModel, data: Any) -> dict[str, Any]:
    """What the graph takes of examples, by the names of its inputs.

    Raises:
        HanseError: UNAVAILABLE without the packages of `hanse[onnx]`; INVALID_INPUT or SCHEMA_MISMATCH for what does
            not fit the model.
    """
    if model.preparation is None:
        dtype = torch.float32 if _convolves(model.module) else model.dtype
        return {FEATURES: torch.from_numpy(model.seen(data)).to(dtype).numpy()}
    try:
        from hanse_learning.portable.onnx_preparation import raw_inputs
    except ImportError as error:
        raise _not_installed(error) from None
    if not (hasattr(data, "columns") or isinstance(data, dict)):
        raise invalid("examples", type(data).__name__, "a table of the raw columns")
    return raw_inputs(model.preparation, cells_of(model.preparation.columns, data, "examples"), OUTPUTS)


def _not_installed(error: ImportError) -> HanseError:
    return HanseError(ErrorCode.UNAVAILABLE, f"onnx: {error.name} is not installed", hint=to_install("hanse[onnx]"))


def _convolves(module: nn.Module) -> bool:
    return any(isinstance(each, _ConvNd) for each in module.modules())


class _Answering(nn.Module):
    """A module, and what turns its outputs into what people ask for."""

    def __init__(self, module: nn.Module, task: str) -> None:
        super().__init__()
        self.module, self._classes = module, task == "classification"
        self.named = PROBABILITIES if self._classes else VALUES

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.module(x)
        return torch.softmax(class_logits(made), dim=1) if self._classes else made.squeeze(1)


def _about(model: TrainedModel) -> dict[str, str]:
    record, preparation = model.record, model.preparation
    return {
        **({} if preparation is None else {"hanse.preparation": preparation.model_dump_json()}),
        **({"hanse.classes": json.dumps(model.class_names)} if model.class_names else {}),
        "hanse.columns": json.dumps(model.columns), "hanse.features": json.dumps(model.features),
        "hanse.task": model.task, "hanse.project": record.project, "hanse.version": str(record.version),
        "hanse.digest": record.digest, "hanse.run": record.lineage.run,
    }  # fmt: skip


def _agree(given: Any, expected: Any) -> None:
    far = float(np.max(np.abs(given - expected) / np.maximum(1.0, np.abs(expected))))
    if given.shape != expected.shape or not far <= _TOLERANCE:
        raise HanseError(ErrorCode.INTERNAL, f"onnx: onnxruntime gives other numbers than torch, by {far:g}")
