"""sklogreg: a Flower / scikit-learn app."""

import joblib
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from sklogreg.task import get_model, get_model_params, set_initial_params, set_model_params

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    num_rounds: int = context.run_config["num-server-rounds"]
    model = get_model(context.run_config["penalty"], context.run_config["local-epochs"])
    set_initial_params(model)

    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=1.0)
    result = strategy.start(grid=grid, initial_arrays=ArrayRecord(get_model_params(model)), num_rounds=num_rounds)

    set_model_params(model, result.arrays.to_numpy_ndarrays())
    joblib.dump(model, "logreg_model.pkl")
