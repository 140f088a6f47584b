"""NVFlare, Client API: logistic regression in numpy on scikit-learn's breast cancer data, a part for each site."""

import argparse

import numpy as np
import nvflare.client as flare
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler


def accuracy(params, x, y):
    return float(((x @ params["weights"] + params["bias"] > 0) == y).mean())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--parts", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    x, y = load_breast_cancer(return_X_y=True)
    x = StandardScaler().fit_transform(x)[args.part :: args.parts]
    y = y[args.part :: args.parts]
    cut = int(0.8 * len(x))

    flare.init()
    while flare.is_running():
        input_model = flare.receive()
        params = {name: np.asarray(value) for name, value in input_model.params.items()}
        metrics = {"accuracy": accuracy(params, x[cut:], y[cut:])}
        if flare.is_evaluate():
            flare.send(flare.FLModel(metrics=metrics))
            continue
        for _ in range(args.epochs):
            error = 1 / (1 + np.exp(-(x[:cut] @ params["weights"] + params["bias"]))) - y[:cut]
            params["weights"] = params["weights"] - 0.1 * x[:cut].T @ error / cut
            params["bias"] = params["bias"] - 0.1 * error.mean()
        flare.send(flare.FLModel(params=params, metrics=metrics, meta={"NUM_STEPS_CURRENT_ROUND": cut}))


if __name__ == "__main__":
    main()
