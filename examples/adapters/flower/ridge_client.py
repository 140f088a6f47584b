"""Flower, the low-level `Client`: ridge regression in numpy on scikit-learn's diabetes data, parameters as bytes."""

from io import BytesIO

import numpy as np
from flwr.client import Client, ClientApp
from flwr.common import (
    Code,
    Context,
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    GetParametersIns,
    GetParametersRes,
    Parameters,
    Status,
)
from sklearn.datasets import load_diabetes

OK = Status(Code.OK, "")


def to_parameters(arrays):
    tensors = []
    for array in arrays:
        buffer = BytesIO()
        np.save(buffer, array, allow_pickle=False)
        tensors.append(buffer.getvalue())
    return Parameters(tensors=tensors, tensor_type="numpy.ndarray")


def from_parameters(parameters):
    return [np.load(BytesIO(tensor), allow_pickle=False) for tensor in parameters.tensors]


class RidgeClient(Client):
    def __init__(self, partition_id, num_partitions):
        x, y = load_diabetes(return_X_y=True, scaled=False)
        x = (x - x.mean(axis=0)) / x.std(axis=0)
        y = (y - y.mean()) / y.std()
        x, y = x[partition_id::num_partitions], y[partition_id::num_partitions]
        cut = int(0.8 * len(x))
        self.train, self.test = (x[:cut], y[:cut]), (x[cut:], y[cut:])

    def get_parameters(self, ins: GetParametersIns) -> GetParametersRes:
        return GetParametersRes(status=OK, parameters=to_parameters([np.zeros(10), np.zeros(())]))

    def fit(self, ins: FitIns) -> FitRes:
        weights, bias = from_parameters(ins.parameters)
        x, y = self.train
        alpha = float(ins.config.get("alpha", 1.0))
        for _ in range(int(ins.config.get("steps", 20))):
            residual = x @ weights + bias - y
            weights = weights - 0.05 * (x.T @ residual + alpha * weights) / len(y)
            bias = bias - 0.05 * residual.mean()
        return FitRes(
            status=OK,
            parameters=to_parameters([weights, bias]),
            num_examples=len(y),
            metrics={"train_mse": float(np.mean((x @ weights + bias - y) ** 2))},
        )

    def evaluate(self, ins: EvaluateIns) -> EvaluateRes:
        weights, bias = from_parameters(ins.parameters)
        x, y = self.test
        residual = x @ weights + bias - y
        r2 = 1 - np.sum(residual**2) / np.sum((y - y.mean()) ** 2)
        return EvaluateRes(status=OK, loss=float(np.mean(residual**2)), num_examples=len(y), metrics={"r2": float(r2)})


def client_fn(context: Context) -> Client:
    return RidgeClient(int(context.node_config["partition-id"]), int(context.node_config["num-partitions"]))


app = ClientApp(client_fn=client_fn)
