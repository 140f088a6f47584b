"""Flower, message API with mods: softmax regression in numpy on the irises; mods clip updates and time each task."""

import time

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import arrays_size_mod, message_size_mod
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from sklearn.datasets import load_iris


def clip_mod(msg: Message, context: Context, call_next):
    """Clip the change that a client makes to a norm of 2."""
    before = msg.content["arrays"].to_numpy_ndarrays()
    reply = call_next(msg, context)
    if not reply.content.array_records:
        return reply
    after = reply.content["arrays"].to_numpy_ndarrays()
    change = [new - old for new, old in zip(after, before)]
    norm = np.sqrt(sum(np.sum(part**2) for part in change))
    scale = min(1.0, 2.0 / norm) if norm else 1.0
    reply.content["arrays"] = ArrayRecord([old + scale * part for old, part in zip(before, change)])
    reply.content["metrics"]["clipped"] = int(scale < 1)
    return reply


def timing_mod(msg: Message, context: Context, call_next):
    began = time.time()
    reply = call_next(msg, context)
    reply.content["metrics"]["seconds"] = time.time() - began
    return reply


client_app = ClientApp(mods=[timing_mod, arrays_size_mod, clip_mod])
server_app = ServerApp()


def load(context):
    x, y = load_iris(return_X_y=True)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    order = np.random.default_rng(3).permutation(len(y))
    mine = order[context.node_config["partition-id"] :: context.node_config["num-partitions"]]
    cut = int(0.7 * len(mine))
    return (x[mine[:cut]], y[mine[:cut]]), (x[mine[cut:]], y[mine[cut:]])


def probabilities(x, weights, bias):
    raised = np.exp(x @ weights + bias)
    return raised / raised.sum(axis=1, keepdims=True)


@client_app.train(mods=[message_size_mod])
def train(msg: Message, context: Context):
    weights, bias = msg.content["arrays"].to_numpy_ndarrays()
    (x, y), _ = load(context)
    for _ in range(50):
        slope = (probabilities(x, weights, bias) - np.eye(3)[y]) / len(y)
        weights = weights - 0.5 * x.T @ slope
        bias = bias - 0.5 * slope.sum(axis=0)
    metrics = MetricRecord({"num-examples": len(y)})
    return Message(RecordDict({"arrays": ArrayRecord([weights, bias]), "metrics": metrics}), reply_to=msg)


@client_app.evaluate()
def evaluate(msg: Message, context: Context):
    weights, bias = msg.content["arrays"].to_numpy_ndarrays()
    _, (x, y) = load(context)
    found = probabilities(x, weights, bias)
    metrics = MetricRecord(
        {
            "accuracy": float((found.argmax(axis=1) == y).mean()),
            "loss": float(-np.log(found[np.arange(len(y)), y]).mean()),
            "num-examples": len(y),
        }
    )
    return Message(RecordDict({"metrics": metrics}), reply_to=msg)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    first = ArrayRecord([np.zeros((4, 3)), np.zeros(3)])
    result = FedAvg().start(grid=grid, initial_arrays=first, num_rounds=context.run_config.get("num-server-rounds", 3))
    weights, bias = result.arrays.to_numpy_ndarrays()
    np.savez("softmax.npz", weights=weights, bias=bias)
