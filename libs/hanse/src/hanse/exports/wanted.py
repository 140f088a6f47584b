"""Where a run is to go: checked before anything is asked of a hub or written."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.wheels import to_install

_MODELS = ("best", "newest", "none")
TRACKERS = {
    "mlflow": "hanse.exports.to_mlflow",
    "tensorboard": "hanse.exports.to_tensorboard",
    "wandb": "hanse.exports.to_wandb",
}
"""What each is called, as is its package, and the module that keeps a run there."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Where a run is to go.

    Attributes:
        to: mlflow, tensorboard or wandb.
        into: MLflow's tracking URI (empty: as MLflow is set up here); a folder for the others (empty: `runs` for
            TensorBoard, the working folder for Weights & Biases, which makes `wandb` in it).
        experiment: MLflow's experiment, or project of Weights & Biases; empty: called as the project.
        model: which version goes along; not to TensorBoard.
        register: the name under which MLflow's registry has the version; empty: it is not registered.
        sites: single sites' metrics go, too, as `<metric>/<site>`.
    """

    to: str
    into: str = ""
    experiment: str = ""
    model: str = "none"
    register: str = ""
    sites: bool = False


def check_wanted(wanted: Wanted) -> None:
    """Check that a run can go there.

    Raises:
        HanseError: INVALID_INPUT for what is unknown or does not fit together; UNAVAILABLE where the tracker's package
            is not installed.
    """
    if wanted.to not in TRACKERS:
        raise invalid("to", wanted.to, f"one of {', '.join(TRACKERS)}")
    if wanted.model not in _MODELS:
        raise invalid("model", wanted.model, f"one of {', '.join(_MODELS)}")
    if wanted.to == "tensorboard" and wanted.model != "none":
        raise invalid("model", wanted.model, "none: TensorBoard keeps no models")
    if wanted.to == "tensorboard" and wanted.experiment:
        raise invalid("experiment", wanted.experiment, "nothing: TensorBoard has folders (into)")
    if wanted.register and wanted.to != "mlflow":
        raise invalid("register", wanted.register, f"nothing: {wanted.to} has no registry")
    if wanted.register and wanted.model == "none":
        raise invalid("model", wanted.model, "best or newest, where a version is to be registered")
    if importlib.util.find_spec(wanted.to) is None:  # the package is called as the tracker
        raise HanseError(
            ErrorCode.UNAVAILABLE, f"{wanted.to}: not installed beside the SDK",
            hint=to_install(f"hanse[{wanted.to}]"),
        )  # fmt: skip
    if wanted.to == "mlflow" and wanted.model != "none":
        from hanse.trained import require_torch

        require_torch()
