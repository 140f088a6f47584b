"""fedprox: a Flower ServerApp with Flower's FedProx."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedProx

from fedprox.model import Classifier

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    torch.manual_seed(1)
    strategy = FedProx(fraction_train=1.0, proximal_mu=context.run_config["proximal-mu"])
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(Classifier().state_dict()),
        train_config=ConfigRecord({"lr": 0.1}),
        num_rounds=context.run_config["num-server-rounds"],
    )
    torch.save(result.arrays.to_torch_state_dict(), "final_model.pt")
