"""Flower, `NumPyClient`: logistic regression in numpy on scikit-learn's breast cancer data, a partition a client."""

import numpy as np
from flwr.client import ClientApp, NumPyClient
from flwr.common import Context
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler


def load_data(partition_id, num_partitions):
    x, y = load_breast_cancer(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    return train_test_split(
        x[partition_id::num_partitions], y[partition_id::num_partitions], test_size=0.2, random_state=42
    )


class FlowerClient(NumPyClient):
    def __init__(self, data):
        self.x_train, self.x_test, self.y_train, self.y_test = data

    def get_parameters(self, config):
        return [np.zeros(self.x_train.shape[1]), np.zeros(1)]

    def fit(self, parameters, config):
        weights, bias = parameters
        for _ in range(int(config.get("local_epochs", 5))):
            error = self._probability(self.x_train, weights, bias) - self.y_train
            weights = weights - 0.1 * self.x_train.T @ error / len(error)
            bias = bias - 0.1 * error.mean()
        return (
            [weights, bias],
            len(self.x_train),
            {"train_accuracy": self._accuracy(self.x_train, self.y_train, weights, bias)},
        )

    def evaluate(self, parameters, config):
        weights, bias = parameters
        p = np.clip(self._probability(self.x_test, weights, bias), 1e-7, 1 - 1e-7)
        loss = -np.mean(self.y_test * np.log(p) + (1 - self.y_test) * np.log(1 - p))
        return float(loss), len(self.x_test), {"accuracy": self._accuracy(self.x_test, self.y_test, weights, bias)}

    @staticmethod
    def _probability(x, weights, bias):
        return 1 / (1 + np.exp(-(x @ weights + bias)))

    def _accuracy(self, x, y, weights, bias):
        return float(((self._probability(x, weights, bias) > 0.5) == y).mean())


def client_fn(context: Context):
    data = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    return FlowerClient(data).to_client()


app = ClientApp(client_fn=client_fn)
