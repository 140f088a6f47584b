"""passengers: a Flower ServerApp; the first model is a client's."""

from flwr.common import Context
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg


def average(metrics):
    return {"accuracy": sum(n * each["accuracy"] for n, each in metrics) / sum(n for n, _ in metrics)}


def server_fn(context: Context):
    strategy = FedAvg(evaluate_metrics_aggregation_fn=average)
    return ServerAppComponents(
        strategy=strategy, config=ServerConfig(num_rounds=context.run_config["num-server-rounds"])
    )


app = ServerApp(server_fn=server_fn)
