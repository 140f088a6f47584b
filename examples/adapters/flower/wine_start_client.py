"""Flower as it was before apps: a script that starts a `NumPyClient`, with SGDClassifier on scikit-learn's wines."""

import argparse

import flwr as fl
import numpy as np
from sklearn.datasets import load_wine
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss
from sklearn.preprocessing import scale


class WineClient(fl.client.NumPyClient):
    def __init__(self, partition, partitions):
        x, y = load_wine(return_X_y=True)
        order = np.random.RandomState(1).permutation(len(y))[partition::partitions]
        x, y = scale(x)[order], y[order]
        cut = int(0.75 * len(y))
        self.x_train, self.y_train, self.x_test, self.y_test = x[:cut], y[:cut], x[cut:], y[cut:]
        self.model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.02, random_state=0)
        self.model.partial_fit(self.x_train[:1], self.y_train[:1], classes=[0, 1, 2])

    def get_parameters(self, config):
        return [np.zeros((3, 13)), np.zeros(3)]

    def set_parameters(self, parameters):
        self.model.coef_, self.model.intercept_ = (np.array(each) for each in parameters)

    def fit(self, parameters, config):
        self.set_parameters(parameters)
        for _ in range(3):
            self.model.partial_fit(self.x_train, self.y_train)
        return [self.model.coef_, self.model.intercept_], len(self.y_train), {}

    def evaluate(self, parameters, config):
        self.set_parameters(parameters)
        loss = log_loss(self.y_test, self.model.predict_proba(self.x_test), labels=[0, 1, 2])
        return float(loss), len(self.y_test), {"accuracy": float(self.model.score(self.x_test, self.y_test))}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Flower client")
    parser.add_argument("--server-address", default="127.0.0.1:8080")
    parser.add_argument("--partition-id", type=int, default=0)
    parser.add_argument("--partitions", type=int, default=3)
    args = parser.parse_args()
    client = WineClient(args.partition_id, args.partitions)
    fl.client.start_client(server_address=args.server_address, client=client.to_client())
