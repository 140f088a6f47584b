"""Models that leave: from a downloaded file and its signed record to torch, predictions, scikit-learn and ONNX.

No hub is needed. What reads them is `hanse_learning.portable`, of the extra `hanse[torch]`: without it the SDK is
light.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any, Protocol, cast

from hanse.files import record_path
from hanse.verification import verify_model
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.models import ModelVersion
from hanse_fabric.text_files import read_text
from hanse_fabric.wheels import to_install
from hanse_schemas.schema import LearnableSchema

_READER = "hanse_learning.portable"
_NEEDS = ("torch", "hanse_learning")


class TrainedModel(Protocol):
    """A model that can be used, in this process, without a hub.

    Attributes:
        module: `torch.nn.Module` in evaluation mode; it takes (n, *shape) in its own dtype, and gives (n, outputs):
            logits, or a regression's values.
        record: as the registry signed it.
        schema: of the data that it was trained on.
        columns: of a table, raw where its columns were prepared; none where the data are arrays.
        features: their names as the module sees them, in its order.
        task: classification or regression.
        classes: how many there are; INVALID_INPUT for a regression.
        class_names: what they are called, in their order; none: by their numbers.
    """

    module: Any
    record: ModelVersion
    schema: LearnableSchema

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def features(self) -> tuple[str, ...]: ...

    @property
    def task(self) -> str: ...

    @property
    def classes(self) -> int: ...

    @property
    def class_names(self) -> tuple[str, ...]: ...

    def predict(self, data: Any) -> Any:
        """Classes (n,), by name where they have names, or values (n,) float64.

        Args:
            data: a table (DataFrame, or columns by name) or an array.

        Raises:
            HanseError: INVALID_INPUT naming the column or the example that does not fit.
        """
        ...

    def seen(self, data: Any) -> Any:
        """What the module takes of a table or an array, (n, *shape) float32."""
        ...

    def inputs(self, data: Any) -> dict[str, Any]:
        """What the ONNX graph takes of a table or an array, by the names of its inputs; needs `hanse[onnx]`."""
        ...

    def predict_proba(self, data: Any) -> Any:
        """The probability of each class, (n, classes) float64."""
        ...

    def to_torch(self) -> Any:
        """A `torch.nn.Module` of one's own, in evaluation mode; it takes what `seen` makes of a table."""
        ...

    def to_onnx(self, path: str | Path) -> Path:
        """Write the model as ONNX, once onnxruntime has given what torch gives; needs `hanse[onnx]`."""
        ...

    def to_sklearn(self) -> Any:
        """A fitted estimator of scikit-learn; needs scikit-learn."""
        ...


def read_record(path: Path, record: Path | None = None) -> ModelVersion:
    """The signed record of a downloaded model, which lies beside it unless `record` says where.

    Raises:
        HanseError: NOT_FOUND, or what is wrong with the record.
    """
    return ModelVersion.decode(read_text(record or record_path(path), "model record").encode())


def load(path: str | Path, *, record: str | Path | None = None, trusted_key: bytes | None = None) -> TrainedModel:
    """A downloaded model, verified and ready to use.

    Args:
        path: the file that `Model.download` or `hanse model download` has written.
        record: its signed record; None: `<path>.json`.
        trusted_key: the registry's public key, 32 raw bytes; None: the one in the record, which shows that file and
            record belong together, and not whose they are.

    Raises:
        HanseError: UNAVAILABLE where the packages of `hanse[torch]` are not installed; TAMPERED; NOT_FOUND;
            INVALID_INPUT for a model that cannot be built from its record.
    """
    require_torch()
    file = Path(path)
    signed = read_record(file, None if record is None else Path(record))
    verify_model(file, signed, trusted_key=trusted_key or signed.public_key)
    return read_verified(file, signed)


def read_verified(path: Path, record: ModelVersion) -> TrainedModel:
    """The model of a file that has been verified against its record.

    Raises:
        HanseError: as `load`.
    """
    require_torch()
    return cast(TrainedModel, importlib.import_module(_READER).read_trained(path, record))


def require_torch() -> None:
    """Check that models can be built here.

    Raises:
        HanseError: UNAVAILABLE naming the package that is not installed.
    """
    for name in _NEEDS:
        if importlib.util.find_spec(name) is None:
            raise HanseError(
                ErrorCode.UNAVAILABLE, f"{name}: not installed beside the SDK", hint=to_install("hanse[torch]")
            )
