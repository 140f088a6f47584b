"""What MLflow loads a model by: `mlflow.pyfunc.load_model(uri)`; the model's own file and signed record, no pickle.

The file is verified against its record whenever it is loaded. `hanse[torch]` must be installed there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hanse.trained import TrainedModel, load
from hanse_fabric.errors import invalid

FILE = "model.safetensors"
_PARAMS = ("probabilities",)


class Loaded:
    """What MLflow asks to predict.

    Attributes:
        model: preparation and module.
    """

    def __init__(self, model: TrainedModel) -> None:
        self.model = model

    def predict(self, data: Any, params: Mapping[str, Any] | None = None) -> Any:
        """Classes (n,), by name where they have names, or a regression's values (n,); with the parameter
        `probabilities` (n, classes).

        Args:
            data: a table with the model's raw columns, or an array (n, *shape).

        Raises:
            HanseError: INVALID_INPUT naming the column or the example that does not fit.
        """
        given = dict(params or {})
        if unknown := sorted(set(given) - set(_PARAMS)):
            raise invalid("params", unknown[0], f"one of {', '.join(_PARAMS)}")
        return self.model.predict_proba(data) if given.get("probabilities") else self.model.predict(data)

    def get_raw_model(self) -> Any:
        """The `torch.nn.Module`, which takes what `model.seen(data)` gives."""
        return self.model.module


def _load_pyfunc(path: str) -> Loaded:
    return Loaded(load(Path(path) / FILE))
