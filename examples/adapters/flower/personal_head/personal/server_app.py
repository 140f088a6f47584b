"""personal: the server averages bodies alone."""

import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from personal.task import Personal

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    torch.manual_seed(5)
    strategy = FedAvg(arrayrecord_key="body")
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(Personal().body.state_dict()),
        num_rounds=context.run_config["num-server-rounds"],
    )
