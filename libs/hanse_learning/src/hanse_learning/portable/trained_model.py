"""A model version with what its record says of it: the module, the columns, the task."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from torch import nn

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.models import ModelVersion
from hanse_fabric.tensors.file import read_tensors
from hanse_learning.config import check_model
from hanse_learning.portable.examples import examples_of
from hanse_learning.preparation.apply import apply
from hanse_learning.preparation.cells import cells_of
from hanse_learning.site.entries import entries_of, load
from hanse_learning.site.examples import Problem, pose
from hanse_learning.site.losses import class_logits
from hanse_learning.site.models import build
from hanse_schemas.preparation import Preparation, prepared_schema
from hanse_schemas.schema import ArraySchema, DataSchema, LearnableSchema, OpenSchema, TabularSchema, learnable

if TYPE_CHECKING:
    from hanse_learning.portable.estimators import HanseClassifier, HanseRegressor

_SCHEMA: TypeAdapter[DataSchema] = TypeAdapter(DataSchema)
_BATCH = 1024
_OUTPUT = "output.weight"
"""The last layer's weights (outputs, ...), which every built-in architecture has."""


@dataclass(frozen=True, repr=False)
class TrainedModel:
    """A model that can be used.

    Attributes:
        module: takes (n, *shape) in its own dtype, and gives (n, outputs): logits, or values of a regression. It is in
            evaluation mode.
        schema: of the data that it was trained on.
        preparation: what raw columns become before the module sees them; None: it sees them as they are.
        record: as the registry signed it.
    """

    module: nn.Module
    problem: Problem
    schema: LearnableSchema
    record: ModelVersion
    preparation: Preparation | None = None

    def __repr__(self) -> str:
        """A line for people."""
        record, schema = self.record, self.schema
        told = [str((record.problem or {}).get("model", {}).get("name") or record.architecture.get("name"))]
        if not isinstance(schema, OpenSchema):
            called = self.class_names or (f"{self.classes} classes",) if self.task == "classification" else ()
            told.append(self.task + (f" ({', '.join(called)})" if called else ""))
        told.append(f"{len(self.columns)} columns" if self.columns else f"arrays of shape {list(self.problem.shape)}")
        return f"<hanse trained model {record.project} v{record.version}: {', '.join(told)}>"

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of a table's columns, raw ones where there is a preparation; none where the data are arrays."""
        return tuple(column.name for column in self.schema.features) if isinstance(self.schema, TabularSchema) else ()

    @property
    def features(self) -> tuple[str, ...]:
        """The features' names, in the module's order; none where the data are arrays."""
        return self.columns if self.preparation is None else self.preparation.outputs

    @property
    def dtype(self) -> torch.dtype:
        """Of the parameters and of what the module takes."""
        return next(self.module.parameters()).dtype

    @property
    def classes(self) -> int:
        """How many there are.

        Raises:
            HanseError: INVALID_INPUT for a regression.
        """
        if self.task != "classification":
            raise invalid("classes", self.task, "a model of classification", hint="predict gives a regression's values")
        return max(2, self.problem.outputs)

    @property
    def class_names(self) -> tuple[str, ...]:
        """What the classes are called, in their order; none: by their numbers."""
        return self.schema.class_names if isinstance(self.schema, TabularSchema) else ()

    @property
    def task(self) -> str:
        """classification or regression.

        Raises:
            HanseError: INVALID_INPUT where the project's schema is open, so that only the sites know.
        """
        if isinstance(self.schema, OpenSchema):
            raise invalid(
                "schema.kind", "open", "tabular or array, which say the task",
                hint="the module itself is there: model.module, or to_torch()",
            )  # fmt: skip
        return self.schema.task

    def predict(self, data: Any) -> NDArray[Any]:
        """What the model says of examples: classes (n,), by name where they have names, else int64; or values (n,)
        float64.

        Args:
            data: a table with the columns (others are left alone), raw where there is a preparation; where there is
                none also an array (n, *shape).

        Raises:
            HanseError: INVALID_INPUT naming the column or the example that does not fit.
        """
        if self.task == "classification":
            places = np.asarray(self.predict_proba(data).argmax(axis=1), dtype=np.int64)
            return np.array(self.class_names)[places] if self.class_names else places
        return self._outputs(data).squeeze(1).double().numpy()

    def predict_proba(self, data: Any) -> NDArray[np.float64]:
        """The probability of each class, (n, classes).

        Raises:
            HanseError: as `predict`; INVALID_INPUT for a regression.
        """
        wanted = self.classes
        shares = torch.softmax(class_logits(self._outputs(data)).double(), dim=1).numpy()
        if shares.shape[1] != wanted:
            raise invalid("outputs", shares.shape[1], f"one for each of {wanted} classes")
        return np.asarray(shares)

    def to_torch(self) -> nn.Module:
        """A module of one's own, in evaluation mode: what is done to it, such as further training, is not done to
        `module`. It takes what `seen` makes of a table."""
        return copy.deepcopy(self.module)

    def to_onnx(self, path: str | Path) -> Path:
        """Write the model as ONNX, held against torch by onnxruntime; see `hanse_learning.portable.onnx_file`."""
        from hanse_learning.portable.onnx_file import write_onnx

        return write_onnx(self, Path(path))

    def inputs(self, data: Any) -> dict[str, Any]:
        """What the model's ONNX graph takes of examples, by the names of its inputs.

        Raises:
            HanseError: as `predict`; INVALID_INPUT for what is no table where columns are prepared.
        """
        from hanse_learning.portable.onnx_file import inputs_of

        return inputs_of(self, data)

    def to_sklearn(self) -> HanseClassifier | HanseRegressor:
        """The model as a fitted estimator of scikit-learn."""
        from hanse_learning.portable.estimators import estimator_of

        return estimator_of(self)

    def _outputs(self, data: Any) -> torch.Tensor:
        """(n, outputs) of examples."""
        x = torch.from_numpy(self.seen(data)).to(self.dtype)
        with torch.no_grad():
            made = [self.module(batch) for batch in torch.split(x, _BATCH)]
        return torch.cat(made) if made else torch.empty((0, self.problem.outputs), dtype=self.dtype)

    def seen(self, data: Any) -> NDArray[np.float32]:
        """What the module takes, (n, *shape): examples as sites have them, prepared.

        Raises:
            HanseError: as `predict`; SCHEMA_MISMATCH for a raw cell that the preparation refuses.
        """
        if self.preparation is None:
            return examples_of(data, self.problem.shape, self.features)
        if not (hasattr(data, "columns") or isinstance(data, dict)):
            raise HanseError(
                ErrorCode.INVALID_INPUT,
                f"examples: {type(data).__name__} has no names of columns, a table of the raw columns was expected",
                hint="a DataFrame, or a dict of columns by name: raw numbers in an array cannot be told from prepared "
                "ones. What is prepared already goes to the module: model.to_torch()",
            )
        try:
            cells = cells_of(self.preparation.columns, data, "examples")
            return apply(self.preparation, cells, where="examples").astype(np.float32)
        except HanseError as error:
            if error.code is ErrorCode.SCHEMA_MISMATCH:  # here are no site and no log, but the table's owner
                error.hint = "correct the table, or leave the cell empty"
            raise


def read_trained(path: Path, record: ModelVersion) -> TrainedModel:
    """The model of a file.

    Args:
        path: the file, which the caller has verified against the record.
        record: its signed record.

    Raises:
        HanseError: INVALID_INPUT where the record does not say what the model is for (of release 0.1.0, or of site
            code's own model), or where entries stay at the sites.
    """
    arrays = read_tensors(path)[1]
    what = f"version {record.version} of {record.project}"
    if record.problem is None:
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"{what}: its record does not say what the model is for",
            hint="it is of site code's own model, or of a run before release 0.2.0: build the module yourself, and "
            "fill it with the file's arrays (safetensors)",
        )  # fmt: skip
    try:
        schema = learnable(_SCHEMA.validate_python(record.problem.get("schema")))
        given = record.problem.get("preparation")
        preparation = None if given is None else Preparation.model_validate(given)
        seen = schema
        if preparation is not None and isinstance(schema, TabularSchema):
            seen = prepared_schema(schema, preparation)
        config = check_model(record.problem.get("model") or {}, seen)
    except ValidationError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"{what}: its record cannot be read: {error}") from None
    outputs = _outputs_in(arrays)
    loss = "binary" if outputs == 1 and _of_classes(schema) else None
    problem = pose(seen, None, loss=loss, inputs=config.inputs, outputs=outputs)
    module = build(config, problem)
    layout = entries_of(module, config.buffers).travelling
    if missing := [entry.name for entry in layout if entry.name not in arrays]:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"{what}: it has no {', '.join(missing[:5])}, which a {config.name} has",
            hint="entries that are local (model.state, model.buffers) stay at the sites, and one's own pipeline may "
            "have trained another model; its arrays are in the file (safetensors)",
        )  # fmt: skip
    load(module, arrays, layout, what=what)
    return TrainedModel(module.eval(), problem, schema, record, preparation)


def _of_classes(schema: LearnableSchema) -> bool:
    return isinstance(schema, TabularSchema | ArraySchema) and schema.task == "classification"


def _outputs_in(arrays: Mapping[str, NDArray[Any]]) -> int | None:
    """How many outputs the file's last layer has; None where that layer stays at the sites."""
    last = arrays.get(_OUTPUT)
    return None if last is None else int(last.shape[0])
