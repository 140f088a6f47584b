"""An NVFlare Client API script as one task finds it: it receives one model, and what it sends is the task's answer.

Public interface: `nvflare.client` (init, receive, send, is_running, is_train, is_evaluate, FLModel).
"""

from __future__ import annotations

import copy
import runpy
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from .carrier import UnfitError

_NUMBERS = (int, float, np.integer, np.floating)
_TASKS = {"train": "train", "evaluate": "validate"}


def load() -> None:
    """Import the framework."""
    import_module("nvflare.client")


def version() -> str:
    """Of the framework."""
    return str(import_module("nvflare").__version__)


def work(said: dict[str, Any], arrays: Mapping[str, np.ndarray], place: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Do a task: (what is told of it, the model's arrays as `model/NAME`).

    Raises:
        UnfitError: for a script that sends nothing, or what is no model.
    """
    from nvflare.client.api_spec import CLIENT_API_KEY
    from nvflare.fuel.data_event.data_bus import DataBus

    given = {name[6:]: array for name, array in arrays.items() if name.startswith("model/")}
    api = _one_task(said, given)
    DataBus().put_data(CLIENT_API_KEY, api)
    sys.argv = [said["entry"], *said["arguments"]]
    try:
        runpy.run_path(str(place / said["entry"]), run_name="__main__")
    except SystemExit as ended:
        if ended.code not in (None, 0):
            raise
    if api.sent is None:
        raise UnfitError("the script ended, and has sent no model: flare.send(FLModel(...)) answers a flare.receive()")
    return _answer(said, given, api.sent)


def _answer(said: dict[str, Any], given: Mapping[str, np.ndarray], sent: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    from nvflare.app_common.abstract.fl_model import ParamsType

    steps = (sent.meta or {}).get("NUM_STEPS_CURRENT_ROUND")
    # `flare.evaluate` makes one number of it.
    found = {"metric": sent.metrics} if isinstance(sent.metrics, _NUMBERS) else sent.metrics or {}
    metrics = {str(name): float(value) for name, value in found.items() if isinstance(value, _NUMBERS)}
    told = {"examples": None if steps is None else int(steps), "metrics": metrics}
    if said["operation"] == "evaluate":
        if not metrics:
            raise UnfitError("the script sent no metrics to an evaluation: flare.send(FLModel(metrics={...}))")
        return told, {}
    if not isinstance(sent.params, Mapping) or not sent.params:
        raise UnfitError("the script sent no params to a training: flare.send(FLModel(params={...}))")
    made = {str(name): _array(name, value) for name, value in sent.params.items()}
    if sent.params_type == ParamsType.DIFF:
        odd = sorted(set(made) - set(given))
        if odd:
            raise UnfitError(f"params_type DIFF: entry {odd[0]} is not in the received model")
        made = {name: array + made[name] if name in made else array for name, array in given.items()}
    return told, {f"model/{name}": array for name, array in made.items()}


def _array(name: object, value: Any) -> np.ndarray:
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    found = np.asarray(value)
    if found.dtype.kind not in "fiub":
        raise UnfitError(f"entry {name} of params is no array of numbers")
    return found


def _one_task(said: dict[str, Any], given: Mapping[str, np.ndarray]) -> Any:
    """A Client API that has one task."""
    from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
    from nvflare.client.in_process.api import InProcessClientAPI

    class OneTask(InProcessClientAPI):  # type: ignore[misc, unused-ignore]
        """Gives the task's model until that is answered."""

        def __init__(self) -> None:  # the base's would listen to events of a job of NVFlare's
            self.rank = "0"
            self.sent: Any = None
            self.model: Any = None
            self.sys_info = {"job_id": said["job"], "site_name": said["site_name"]}

        def init(self, rank: Any = None, config: Any = None) -> None:  # noqa: ARG002 - NVFlare's names
            self.rank = "0" if rank is None else str(rank)

        def receive(self, timeout: Any = None) -> Any:  # noqa: ARG002 - NVFlare's name
            if self.sent is not None:  # the next model is the next task's, of another process
                raise SystemExit(0)
            if self.model is not None:
                return self.model
            self.model = FLModel(
                params_type=ParamsType.FULL, params=_params(given, said["framework"]),
                start_round=0, current_round=said["round"] - 1, total_rounds=said["rounds"],
                meta={"site_name": said["site_name"]},
            )  # fmt: skip
            return self.model

        def send(self, model: Any, clear_cache: bool = True) -> None:  # noqa: ARG002 - NVFlare's names
            if self.model is None:
                raise RuntimeError('"receive" needs to be called before sending model!')
            if self.sent is None:
                self.sent = copy.copy(model)  # scripts may empty what they have sent

        def is_running(self) -> bool:
            return self.sent is None

        def get_task_name(self) -> str:
            return _TASKS[said["operation"]]

        def is_train(self) -> bool:
            return bool(said["operation"] == "train")

        def is_evaluate(self) -> bool:
            return bool(said["operation"] == "evaluate")

        def is_submit_model(self) -> bool:
            return False

        def system_info(self) -> dict[str, Any]:
            return dict(self.sys_info)

        def get_config(self) -> dict[str, Any]:
            return dict(said["config"])

        def get_job_id(self) -> str:
            return str(said["job"])

        def get_site_name(self) -> str:
            return str(said["site_name"])

        def log(self, key: str, value: Any, data_type: Any, **kwargs: Any) -> bool:  # noqa: ARG002 - NVFlare's names
            print(f"{key}: {value}", file=sys.stderr)
            return True

        def clear(self) -> None:
            return None

        def shutdown(self) -> None:
            return None

    return OneTask()


def _params(given: Mapping[str, np.ndarray], framework: str) -> dict[str, Any]:
    if framework == "numpy":
        return {name: array.copy() for name, array in given.items()}
    torch = import_module("torch")
    return {name: torch.from_numpy(array.copy()) for name, array in given.items()}
