"""passengers: a Flower ClientApp on a file that the node's configuration names."""

import warnings

from flwr.client import ClientApp, NumPyClient
from flwr.common import Context

from passengers.task import create_model, load_data


class TableClient(NumPyClient):
    def __init__(self, path, c):
        self.x_train, self.x_test, self.y_train, self.y_test = load_data(path)
        self.model = create_model(c)

    def get_parameters(self, config):
        return [self.model.coef_, self.model.intercept_]

    def fit(self, parameters, config):
        self.model.coef_, self.model.intercept_ = parameters
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.model.fit(self.x_train, self.y_train)
        return self.get_parameters(config), len(self.x_train), {}

    def evaluate(self, parameters, config):
        self.model.coef_, self.model.intercept_ = parameters
        accuracy = self.model.score(self.x_test, self.y_test)
        return 1.0 - accuracy, len(self.x_test), {"accuracy": float(accuracy)}


def client_fn(context: Context):
    return TableClient(context.node_config["data-path"], context.run_config["c"]).to_client()


app = ClientApp(client_fn)
