"""Flower's strategies on the benchmark's arrays: run by `strategies.py` in Flower's own environment, without Hanse.

`python strategies_flower.py NAME FOLDER PARTICIPANTS COLUMNS OFFSET REPEATS` prints JSON: seconds of one aggregation.

What is timed is each strategy's own `aggregate_train`. Received arrays lie in memory already (`Array.numpy` gives them
as they are, where Flower would read them out of bytes first), as they do for Hanse.
"""

from __future__ import annotations

import json
import logging
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import (
    Bulyan,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedTrimmedAvg,
    FedYogi,
    Krum,
    MultiKrum,
    QFedAvg,
)
from flwr.supercore.task_identity import TaskIdentity

ENTRIES = 8
SLOW_SECONDS = 10.0
"""What takes longer is measured once."""

STRATEGIES = {
    "weighted_mean": FedAvg,
    "avgm": lambda: FedAvgM(server_learning_rate=0.5, server_momentum=0.9),
    "adagrad": FedAdagrad,
    "adam": FedAdam,
    "yogi": FedYogi,
    "median": FedMedian,
    "trimmed_mean": lambda: FedTrimmedAvg(beta=0.2),
    "krum": lambda: Krum(num_malicious_nodes=3),
    "multi_krum": lambda: MultiKrum(num_malicious_nodes=3, num_nodes_to_select=13),
    "bulyan": lambda: Bulyan(num_malicious_nodes=3),
    "qfedavg": lambda: QFedAvg(client_learning_rate=0.1, q=1.0),
}


def record(flat: np.ndarray, held: dict[bytes, np.ndarray]) -> ArrayRecord:
    """An ArrayRecord whose arrays are parts of `flat` (P,); `held` keeps them by what the Array has for bytes."""
    arrays = {}
    for index, part in enumerate(np.split(flat, ENTRIES)):
        key = b"held %d" % len(held)
        held[key] = part
        arrays[f"e{index}"] = Array(str(part.dtype), part.shape, "numpy.ndarray", key)
    return ArrayRecord(arrays)


def main() -> None:
    """Measure and print."""
    logging.disable(logging.CRITICAL)
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # without which no message is made
    name, folder, count, columns, offset, repeats = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:7])
    rows = [np.fromfile(folder / f"{k}", np.float32, columns, offset=offset) for k in range(count)]
    model = np.zeros(columns, np.float32)
    held: dict[bytes, np.ndarray] = {}
    decode = Array.numpy
    Array.numpy = lambda self: held[self.data] if self.data[:5] == b"held " else decode(self)
    seconds = []
    for _ in range(repeats + 1):
        held.clear()
        strategy = STRATEGIES[name]()
        current = record(model, held)
        strategy.current_arrays = current
        if name in ("adagrad", "adam", "yogi"):
            strategy.current_arrays = {key: array.numpy() for key, array in current.items()}
        replies = [
            Message(
                RecordDict({
                    "arrays": record(row, held),
                    "metrics": MetricRecord({"num-examples": 10 + k, "train_loss": 1.0 + k}),
                }),
                dst_node_id=1 + k, message_type="train",
            )
            for k, row in enumerate(rows)
        ]  # fmt: skip
        began = time.perf_counter()
        arrays, _ = strategy.aggregate_train(1, replies)
        seconds.append(time.perf_counter() - began)
        if arrays is None:
            raise SystemExit(f"{name}: Flower aggregated nothing")
        if seconds[0] > SLOW_SECONDS:
            break
    print(json.dumps(statistics.median(seconds[1:] or seconds)))


if __name__ == "__main__":
    main()
