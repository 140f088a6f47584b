"""An NVFlare Client API script as a run's tasks find it: it receives the model of each, and what it sends answers it.

A script whose loop asks `flare.is_running()` goes on with the run's next task, and keeps what it has made before its
loop, as under NVFlare. One that asks for another model otherwise, or ends, begins anew with the next task.

Public interface: `nvflare.client` (init, receive, send, is_running, is_train, is_evaluate, FLModel).
"""

from __future__ import annotations

import copy
import runpy
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

from .tasks import Tasks, UnfitError

_NUMBERS = (int, float, np.integer, np.floating)
_TASKS = {"train": "train", "evaluate": "validate"}


def load() -> None:
    """Import the framework."""
    import_module("nvflare.client")


def version() -> str:
    """Of the framework."""
    return str(import_module("nvflare").__version__)


def serve(tasks: Tasks) -> None:
    """Do a run's tasks, as long as the script asks for them.

    Raises:
        UnfitError: for a script that sends nothing, or what is no model; what the script raises.
    """
    from nvflare.client.api_spec import CLIENT_API_KEY
    from nvflare.fuel.data_event.data_bus import DataBus

    given = _Given(tasks)
    DataBus().put_data(CLIENT_API_KEY, _client_api(given))
    sys.argv = [given.said["entry"], *given.said["arguments"]]
    try:
        runpy.run_path(str(tasks.place / given.said["entry"]), run_name="__main__")
    except SystemExit as ended:
        if ended.code not in (None, 0):
            raise
    given.answer()


class _Given:
    """The task that the script is given, and what it has sent for it.

    Attributes:
        said, arrays: the task, and the model's arrays by name.
        model: as the script has received it; None: it has not asked yet.
        sent: None: nothing yet.
    """

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        if not self._take():
            raise UnfitError("there is no task to begin with")

    def _take(self) -> bool:
        frame = self._tasks.next()
        if frame is None:
            return False
        self.said, arrays = frame
        self.arrays = {name[6:]: array for name, array in arrays.items() if name.startswith("model/")}
        self.model: Any = None
        self.sent: Any = None
        return True

    def seed(self) -> None:
        """Seed the generators by the task."""
        self._tasks.seed()

    def answer(self) -> None:
        """Answer the task with what was sent."""
        if self._tasks.answered:
            return
        if self.sent is None:
            raise UnfitError(
                "the script ended, and has sent no model: flare.send(FLModel(...)) answers a flare.receive()"
            )
        self._tasks.answer(*_answer(self.said, self.arrays, self.sent))

    def go_on(self) -> bool:
        """Whether there is a task that is not answered: where this one is, the next is waited for."""
        if self.sent is None:
            return True
        self.answer()
        return self._take()


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
            raise UnfitError("params_type DIFF: an entry is not in the received model", odd[0])
        made = {name: array + made[name] if name in made else array for name, array in given.items()}
    return told, {f"model/{name}": array for name, array in made.items()}


def _array(name: object, value: Any) -> np.ndarray:
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    found = np.asarray(value)
    if found.dtype.kind not in "fiub":
        raise UnfitError("an entry of params is no array of numbers", name)
    return found


def _client_api(given: _Given) -> Any:
    """A Client API whose models are those of the tasks."""
    from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
    from nvflare.client.in_process.api import InProcessClientAPI

    class OfTasks(InProcessClientAPI):  # type: ignore[misc, unused-ignore]
        """Gives a task's model until that is answered."""

        def __init__(self) -> None:  # the base's would listen to events of a job of NVFlare's
            self.rank = "0"
            self.sys_info = {"job_id": given.said["job"], "site_name": given.said["site_name"]}

        def init(self, rank: Any = None, config: Any = None) -> None:  # noqa: ARG002 - NVFlare's names
            self.rank = "0" if rank is None else str(rank)

        def receive(self, timeout: Any = None) -> Any:  # noqa: ARG002 - NVFlare's name
            if given.sent is not None:  # it has not asked whether there is another: the next may be of another kind
                raise SystemExit(0)
            said = given.said
            if given.model is None:
                given.seed()
                given.model = FLModel(
                    params_type=ParamsType.FULL, params=_params(given.arrays, said["framework"]),
                    start_round=0, current_round=said["round"] - 1, total_rounds=said["rounds"],
                    meta={"site_name": said["site_name"]},
                )  # fmt: skip
            return given.model

        def send(self, model: Any, clear_cache: bool = True) -> None:  # noqa: ARG002 - NVFlare's names
            if given.model is None:
                raise RuntimeError('"receive" needs to be called before sending model!')
            if given.sent is None:
                given.sent = copy.copy(model)  # scripts may empty what they have sent

        def is_running(self) -> bool:
            return given.go_on()

        def get_task_name(self) -> str:
            return _TASKS[given.said["operation"]]

        def is_train(self) -> bool:
            return bool(given.said["operation"] == "train")

        def is_evaluate(self) -> bool:
            return bool(given.said["operation"] == "evaluate")

        def is_submit_model(self) -> bool:
            return False

        def system_info(self) -> dict[str, Any]:
            return dict(self.sys_info)

        def get_config(self) -> dict[str, Any]:
            return dict(given.said["config"])

        def get_job_id(self) -> str:
            return str(given.said["job"])

        def get_site_name(self) -> str:
            return str(given.said["site_name"])

        def log(self, key: str, value: Any, data_type: Any, **kwargs: Any) -> bool:  # noqa: ARG002 - NVFlare's names
            print(f"{key}: {value}", file=sys.stderr)
            return True

        def clear(self) -> None:
            return None

        def shutdown(self) -> None:
            return None

    return OfTasks()


def _params(given: Mapping[str, np.ndarray], framework: str) -> dict[str, Any]:
    if framework == "numpy":
        return {name: array.copy() for name, array in given.items()}
    torch = import_module("torch")
    return {name: torch.from_numpy(array.copy()) for name, array in given.items()}
