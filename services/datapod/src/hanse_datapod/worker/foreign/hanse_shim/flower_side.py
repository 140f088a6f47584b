"""A Flower app as a run's tasks find it: its `ClientApp` gets a message of each, and what it replies is the answer.

Public interfaces: `flwr.app` and `flwr.clientapp` (Message, RecordDict, ArrayRecord), and the older `flwr.client`
(`NumPyClient`, `client_fn`, `start_client`), whose arguments travel in the same messages.
"""

from __future__ import annotations

import json
import runpy
import sys
import time
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from .tasks import Tasks, UnfitError

_NUMBERS = (int, float, np.integer, np.floating)
_USED = ("app", "clientapp", "client", "common", "serverapp", "compat.common.recorddict_compat")
_STARTING = "flwr.compat.client.app"
_DAY_S = 86_400.0
_RECORDS = (("array", "arrays"), ("config", "config"))
"""Of a message: what Flower's strategies call them where the app's do not say otherwise."""
_TEXTS = "texts"
"""Name, beside the arrays of what an app keeps, of its numbers and texts in JSON."""


class _FirstModel(Exception):  # noqa: N818 - no error: it ends a server's work where its first model is known
    def __init__(self, arrays: Any) -> None:
        super().__init__("the first model")
        self.arrays = arrays


def load() -> None:
    """Import the framework."""
    for name in _USED:
        import_module(f"flwr.{name}")


def version() -> str:
    """Of the framework."""
    return str(sys.modules["flwr"].__version__)


def serve(tasks: Tasks) -> None:
    """Do a run's tasks. The app is loaded once, as by Flower's simulation; each message has a context of its own.

    The first model, which may be made by another part of the app, ends it: then the next task loads the app anew.

    Raises:
        UnfitError: as `work`; what the app raises.
    """
    while (frame := tasks.next()) is not None:
        tasks.answer(*work(*frame, tasks))
        if frame[0]["operation"] == "initialize":
            return


def work(said: dict[str, Any], arrays: Mapping[str, np.ndarray], tasks: Tasks) -> tuple[dict[str, Any], dict[str, Any]]:
    """Do a task: (what is told of it, the model's arrays as `model/NAME` and what the app keeps as `kept/...`).

    Raises:
        UnfitError: for an app without what the task needs, or a reply of another form.
    """
    place = tasks.place
    described = _described(place)
    run_config = {**described["config"], **said["config"]}
    context = _context(said, arrays, run_config)
    if said["operation"] == "initialize":
        tasks.seed()
        return _first_model(said, described, context, place)
    app = _client_app(said, described, place)
    tasks.seed()
    given = {name[6:]: array for name, array in arrays.items() if name.startswith("model/")}
    told, made = _asked(app, said, given, context)
    return told, made | _kept(context.state)


def _described(place: Path) -> dict[str, Any]:
    """What the app's `pyproject.toml` says of it; nothing where there is none."""
    path = place / "pyproject.toml"
    if not path.exists():
        return {"config": {}, "clientapp": None, "serverapp": None}
    try:
        import tomllib as toml
    except ModuleNotFoundError:  # Python 3.10: Flower brings it
        import tomli as toml  # type: ignore[import-not-found, no-redef, unused-ignore]
    flower = toml.loads(path.read_text()).get("tool", {}).get("flwr", {}).get("app", {})
    components = flower.get("components", {})
    return {
        "config": _flat(flower.get("config", {})),
        "clientapp": components.get("clientapp"), "serverapp": components.get("serverapp"),
    }  # fmt: skip


def _flat(config: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in config.items():
        found |= _flat(value, f"{before}{name}.") if isinstance(value, Mapping) else {f"{before}{name}": value}
    return found


def _named(reference: str) -> Any:
    module, _, attribute = reference.partition(":")
    return getattr(import_module(module), attribute or "app")


@cache
def _loaded(entry: str | None, clientapp: str | None, arguments: tuple[str, ...], place: Path) -> Any:
    """The app's `ClientApp`: the one that its `pyproject.toml` names, or the file's `app`, `client_fn`, or the client
    that it would start."""
    from flwr.clientapp import ClientApp

    if clientapp:
        return _named(clientapp)
    if entry is None:
        raise UnfitError("the folder has no pyproject.toml that names [tool.flwr.app.components] clientapp")
    started: list[Any] = []
    _catch_started(started)
    module = import_module(Path(entry).stem)
    found = _first_of(module, ClientApp)
    if found is not None:
        return found
    client_fn = getattr(module, "client_fn", None)
    if client_fn is None and not started:
        sys.argv = [entry, *arguments]
        runpy.run_path(str(place / entry), run_name="__main__")
    if client_fn is not None:
        return ClientApp(client_fn=client_fn)
    if not started:
        raise UnfitError("the file has no ClientApp named app, no client_fn, and starts no client")
    return ClientApp(client_fn=lambda context: started[-1])  # noqa: ARG005 - Flower's name


def _client_app(said: dict[str, Any], described: dict[str, Any], place: Path) -> Any:
    return _loaded(said["entry"], described["clientapp"], tuple(said["arguments"]), place)


def _first_of(module: Any, kind: type) -> Any:
    """An app of this kind that a file without a `pyproject.toml` has by one of its usual names; None without."""
    usual = [getattr(module, name, None) for name in ("app", "client_app", "server_app")]
    return next((found for found in usual if isinstance(found, kind)), None)


def _server_app(said: dict[str, Any], described: dict[str, Any]) -> Any:
    """The app's `ServerApp`; None where it has none."""
    from flwr.serverapp import ServerApp

    if described["serverapp"]:
        return _named(described["serverapp"])
    if said["entry"] is None:
        return None
    _catch_started([])
    return _first_of(import_module(Path(said["entry"]).stem), ServerApp)


def _catch_started(started: list[Any]) -> None:
    """Have `start_client` and `start_numpy_client` tell the client, where they would connect to a server.

    Their own module brings a web server and a database: it is changed when the code loads it, however it does.
    """
    import flwr.client

    def start(*_: Any, client: Any = None, client_fn: Any = None, **__: Any) -> None:
        started.append(client if client is not None else client_fn("0"))

    def catch(module: Any) -> None:
        for name in ("start_client", "start_numpy_client"):
            setattr(module, name, start)

    catch(flwr.client)
    if _STARTING in sys.modules:
        catch(sys.modules[_STARTING])
    else:
        sys.meta_path.insert(0, _Changing(catch))


class _Changing(MetaPathFinder):
    """Finds the module that starts clients, and has it changed once it is loaded."""

    def __init__(self, change: Callable[[Any], None]) -> None:
        self._change, self._asks = change, False

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        """As every finder; of other modules nothing. It stays: code may look for a module before it loads it."""
        if name != _STARTING or self._asks:
            return None
        self._asks = True
        try:
            spec = find_spec(name)
        finally:
            self._asks = False
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def loaded(module: Any) -> None:
            load(module)
            self._change(module)

        spec.loader.exec_module = loaded  # type: ignore[method-assign]
        return spec


def _context(said: dict[str, Any], arrays: Mapping[str, np.ndarray], run_config: dict[str, Any]) -> Any:
    from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord, RecordDict

    state = RecordDict()
    records: dict[str, dict[str, np.ndarray]] = {}
    for name, array in arrays.items():
        if name.startswith("kept/arrays/"):
            record, _, key = name[len("kept/arrays/") :].partition("/")
            records.setdefault(_unquoted(record), {})[key] = array
    texts = json.loads(bytes(arrays[f"kept/{_TEXTS}"])) if f"kept/{_TEXTS}" in arrays else {}
    for name, held in records.items():
        state[name] = ArrayRecord(_arrays_of(held))
    for name, (kind, body) in texts.items():
        state[name] = MetricRecord(body) if kind == "metrics" else ConfigRecord(body)
    return Context(
        run_id=said["run"], node_id=said["node"], node_config=said["node_config"], state=state, run_config=run_config
    )


def _kept(state: Any) -> dict[str, np.ndarray]:
    """What the app keeps in `context.state`, as arrays."""
    made: dict[str, np.ndarray] = {}
    texts: dict[str, Any] = {}
    for name, record in state.array_records.items():
        made |= {f"kept/arrays/{_quoted(name)}/{key}": array.numpy() for key, array in record.items()}
    for name, record in state.metric_records.items():
        texts[name] = ["metrics", dict(record)]
    for name, record in state.config_records.items():
        texts[name] = ["config", dict(record)]
    if texts:
        try:
            text = json.dumps(texts).encode()
        except TypeError:
            raise UnfitError("context.state holds bytes in a ConfigRecord: keep numbers, texts and arrays") from None
        made[f"kept/{_TEXTS}"] = np.frombuffer(text, np.uint8)
    return made


def _quoted(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F")


def _unquoted(name: str) -> str:
    return name.replace("%2F", "/").replace("%25", "%")


def _arrays_of(given: Mapping[str, np.ndarray]) -> dict[str, Any]:
    from flwr.app import Array

    return {name: Array(array) for name, array in given.items()}


def _is_older(app: Any) -> bool:
    """Whether it is made of a `client_fn`, which gets `FitIns` and `EvaluateIns` in its messages."""
    return getattr(app, "_call", None) is not None


def _asked(
    app: Any, said: dict[str, Any], given: Mapping[str, np.ndarray], context: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    from flwr.app import ArrayRecord, ConfigRecord, RecordDict

    if _is_older(app):
        return _asked_older(app, said, given, context)
    config = ConfigRecord({**said["config"], "server-round": said["round"]})
    arrays, told = (said["records"].get(f"{kind}record_key", usual) for kind, usual in _RECORDS)
    content = RecordDict({arrays: ArrayRecord(_arrays_of(given)), told: config})
    reply = _replied(app, content, said["operation"], context)
    numbers: dict[str, Any] = {}
    for record in reply.metric_records.values():
        numbers |= dict(record)
    examples = numbers.pop("num-examples", None)
    if examples is None:
        raise UnfitError(f"the reply to {said['operation']} has no num-examples among its metrics")
    answer = {"examples": int(examples), "metrics": _metrics(numbers)}
    if said["operation"] == "evaluate":
        return answer, {}
    records = list(reply.array_records.values())
    if len(records) != 1:
        raise UnfitError("one ArrayRecord is expected in the reply to train: the model", f"{len(records)} of them")
    return answer, {f"model/{name}": array.numpy() for name, array in records[0].items()}


def _replied(app: Any, content: Any, kind: str, context: Any) -> Any:
    from flwr.app import Message
    from flwr.app.metadata import Metadata

    # Written out, for what would fill it in knows of Flower's own nodes.
    metadata = Metadata(
        run_id=context.run_id, message_id="task", src_node_id=0, dst_node_id=context.node_id, reply_to_message_id="",
        group_id="", created_at=time.time(), ttl=_DAY_S, message_type=kind,
    )  # fmt: skip
    reply = app(Message(content=content, metadata=metadata), context)
    if reply.has_error():
        raise UnfitError(f"the reply to {kind} is an error of Flower's", f"code {reply.error.code}")
    return reply.content


def _asked_older(
    app: Any, said: dict[str, Any], given: Mapping[str, np.ndarray], context: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    from flwr.compat.common import recorddict_compat as compat
    from flwr.compat.common.parameter import ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.compat.common.typing import Code, EvaluateIns, FitIns

    parameters = ndarrays_to_parameters([given[name] for name in _by_place(given)])
    config = {**said["config"], "server_round": said["round"]}
    if said["operation"] == "evaluate":
        asked = compat.evaluateins_to_recorddict(EvaluateIns(parameters, config), keep_input=True)
        tested = compat.recorddict_to_evaluateres(_replied(app, asked, "evaluate", context))
        if tested.status.code != Code.OK:
            raise UnfitError(f"evaluate answered {tested.status.code.name}: has the client an evaluate()?")
        return {"examples": tested.num_examples, "metrics": _metrics({"loss": tested.loss, **tested.metrics})}, {}
    asked = compat.fitins_to_recorddict(FitIns(parameters, config), keep_input=True)
    fitted = compat.recorddict_to_fitres(_replied(app, asked, "train", context), keep_input=False)
    if fitted.status.code != Code.OK:
        raise UnfitError(f"fit answered {fitted.status.code.name}: has the client a fit()?")
    made = parameters_to_ndarrays(fitted.parameters)
    return (
        {"examples": fitted.num_examples, "metrics": _metrics(fitted.metrics)},
        {f"model/{place}": array for place, array in enumerate(made)},
    )


def _by_place(given: Mapping[str, np.ndarray]) -> list[str]:
    """Names of entries in the order of a NumPyClient's list, whose places they are."""
    if not all(name.isdigit() for name in given) or sorted(map(int, given)) != list(range(len(given))):
        raise UnfitError("a NumPyClient has arrays by place: entries of the model must be named 0, 1, 2 and so on")
    return sorted(given, key=int)


def _metrics(given: Mapping[str, Any]) -> dict[str, float]:
    """Those that are numbers; texts, bytes and lists stay."""
    return {str(name): float(value) for name, value in given.items() if isinstance(value, _NUMBERS)}


def _first_model(
    said: dict[str, Any], described: dict[str, Any], context: Any, place: Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The model that the app's server begins with, or that its client has."""
    from flwr.app import RecordDict
    from flwr.compat.common import recorddict_compat as compat
    from flwr.compat.common.parameter import parameters_to_ndarrays
    from flwr.compat.common.typing import Code, GetParametersIns

    told: dict[str, Any] = {"examples": 0, "metrics": {}}
    server = _server_app(said, described)
    arrays = None if server is None else _of_server(server, context)
    if arrays is not None:
        return told, {f"model/{name}": array for name, array in arrays.items()}
    app = _client_app(said, described, place)
    if _is_older(app):
        asked = compat.getparametersins_to_recorddict(GetParametersIns({}))
        asked = asked if isinstance(asked, RecordDict) else RecordDict(asked)
        had = compat.recorddict_to_getparametersres(_replied(app, asked, "get_parameters", context), keep_input=False)
        if had.status.code == Code.OK:
            return told, {f"model/{n}": array for n, array in enumerate(parameters_to_ndarrays(had.parameters))}
    raise UnfitError("the app tells no first model, by its server app or get_parameters(): name an initial_model")


def _of_server(app: Any, context: Any) -> dict[str, np.ndarray] | None:
    """The arrays that a `ServerApp` would begin with; None where it would ask a client."""
    from flwr.compat.common.parameter import parameters_to_ndarrays
    from flwr.serverapp.strategy import Strategy

    def start(self: Any, grid: Any = None, initial_arrays: Any = None, *_: Any, **__: Any) -> Any:  # noqa: ARG001
        raise _FirstModel(initial_arrays)

    original = Strategy.start
    Strategy.start = start
    try:
        if getattr(app, "_main", None) is None:
            server_fn = getattr(app, "_server_fn", None)
            strategy = app._strategy if server_fn is None else server_fn(context).strategy
            parameters = getattr(strategy, "initial_parameters", None)
            return None if parameters is None else {str(n): a for n, a in enumerate(parameters_to_ndarrays(parameters))}
        app(None, context)
    except _FirstModel as found:
        return {name: array.numpy() for name, array in found.arrays.items()}
    finally:
        Strategy.start = original
    return None
