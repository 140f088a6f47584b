"""cnn: a Flower / PyTorch app."""

import torch
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg

from cnn.task import Net, get_weights


def weighted_average(metrics):
    examples = [num_examples for num_examples, _ in metrics]
    return {"accuracy": sum(n * m["accuracy"] for n, m in metrics) / sum(examples)}


def server_fn(context: Context):
    torch.manual_seed(42)
    parameters = ndarrays_to_parameters(get_weights(Net()))
    strategy = FedAvg(
        fraction_fit=context.run_config["fraction-fit"],
        fraction_evaluate=1.0,
        min_available_clients=2,
        initial_parameters=parameters,
        evaluate_metrics_aggregation_fn=weighted_average,
    )
    return ServerAppComponents(
        strategy=strategy, config=ServerConfig(num_rounds=context.run_config["num-server-rounds"])
    )


app = ServerApp(server_fn=server_fn)
