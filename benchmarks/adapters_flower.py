"""A Flower app by Flower itself: run by `adapters.py` in Flower's environment, without Hanse.

`python adapters_flower.py APP ROUNDS OUTPUT DATA...` runs the app's own server and strategy (of a file without one,
Flower's FedAvg) over as many clients as there are DATA files, writes the last model to OUTPUT (NPZ), and prints what
the clients measured of it, their mean by examples, as JSON.

The app's files stay as they are. `ServerApp`, strategies, mods, messages and `ClientApp` are Flower's; between them is
one process in place of a network, for the simulation of Flower's command line needs Ray, a minute of these cores an
app. A script that starts a client gets processes, and Flower's older server, with connections between them.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.common import parameters_to_ndarrays
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

Found = dict[str, Any]


def main() -> None:
    """Run the app and print."""
    app, rounds, output, data = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]
    found: Found = {}
    _tap(found)
    if app.is_dir():
        sys.path.insert(0, str(app))
        described = tomllib.loads((app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
        parts = described["components"]
        config = {**described["config"], "num-server-rounds": rounds}
        _run(_named(parts["serverapp"]), _named(parts["clientapp"]), config, data)
    else:
        sys.path.insert(0, str(app.parent))
        module = import_module(app.stem)
        client = getattr(module, "app", None) or getattr(module, "client_app", None)
        if client is not None:
            server = getattr(module, "server_app", None) or ServerApp(server_fn=lambda _context: _averaging(rounds))
            _run(server, client, {"num-server-rounds": rounds}, data)
        else:
            _as_processes(app, rounds, len(data))
    np.savez(output, **found.pop("model"))
    print(json.dumps(found))


def _named(reference: str) -> Any:
    module, _, attribute = reference.partition(":")
    return getattr(import_module(module), attribute)


def _averaging(rounds: int) -> ServerAppComponents:
    return ServerAppComponents(strategy=FedAvg(), config=ServerConfig(num_rounds=rounds))


class OneProcess(Grid):
    """Calls the clients, each with a context that stays, where Flower would send messages to nodes.

    Args:
        client: the app's `ClientApp`.
        contexts: by node.
    """

    def __init__(self, client: Any, contexts: dict[int, Context]) -> None:
        self._client, self._contexts = client, contexts
        self._replies: dict[str, Message] = {}

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        return Run.create_empty(run_id=1)

    def create_message(
        self, content: Any, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> list[int]:
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        replies = [self._client(each, self._contexts[each.metadata.dst_node_id]) for each in messages]
        self._replies |= {reply.metadata.reply_to_message_id: reply for reply in replies}
        return [reply.metadata.reply_to_message_id for reply in replies]

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [self._replies.pop(each) for each in message_ids]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:  # noqa: ARG002
        return [self._client(each, self._contexts[each.metadata.dst_node_id]) for each in messages]


def _run(server: Any, client: Any, config: dict[str, Any], data: list[str]) -> None:
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # without which no message is made
    contexts = {}
    for place, path in enumerate(data):
        node_config: dict[str, Any] = {"partition-id": place, "num-partitions": len(data), "data-path": path}
        contexts[10 + place] = Context(1, 10 + place, node_config, RecordDict(), config)
    server(grid=OneProcess(client, contexts), context=Context(1, 1, {}, RecordDict(), config))


def _as_processes(script: Path, rounds: int, clients: int) -> None:
    from flwr.server import start_server

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    started = [
        subprocess.Popen([
            sys.executable, str(script), "--server-address", address, "--partition-id", str(place), "--partitions",
            str(clients),
        ])
        for place in range(clients)
    ]  # fmt: skip
    try:
        strategy = FedAvg(min_fit_clients=clients, min_evaluate_clients=clients, min_available_clients=clients)
        start_server(server_address=address, config=ServerConfig(num_rounds=rounds), strategy=strategy)
    finally:
        for process in started:
            process.terminate()
            process.wait()


def _tap(found: Found) -> None:
    """Have the strategies, old and new, tell the last model and what was measured of it."""
    start, fit, evaluate = Strategy.start, FedAvg.aggregate_fit, FedAvg.aggregate_evaluate

    def started(self: Any, *arguments: Any, **named: Any) -> Any:
        result = start(self, *arguments, **named)
        found["model"] = {name: array.numpy() for name, array in result.arrays.items()}
        found.update(dict(result.evaluate_metrics_clientapp[max(result.evaluate_metrics_clientapp)]))
        return result

    def fitted(self: Any, server_round: int, results: Any, failures: Any) -> Any:
        made = fit(self, server_round, results, failures)
        found["model"] = {str(place): array for place, array in enumerate(parameters_to_ndarrays(made[0]))}
        return made

    def evaluated(self: Any, server_round: int, results: Any, failures: Any) -> Any:
        examples = sum(each.num_examples for _, each in results)
        for name in results[0][1].metrics:
            found[name] = sum(each.num_examples * each.metrics[name] for _, each in results) / examples
        return evaluate(self, server_round, results, failures)

    tapped: list[tuple[Any, str, Callable[..., Any]]] = [
        (Strategy, "start", started), (FedAvg, "aggregate_fit", fitted), (FedAvg, "aggregate_evaluate", evaluated)
    ]  # fmt: skip
    for owner, name, function in tapped:
        setattr(owner, name, function)


if __name__ == "__main__":
    main()
