"""NVFlare, Client API: a perceptron in PyTorch on scikit-learn's digits, which sends differences (params_type DIFF)."""

import argparse

import numpy as np
import nvflare.client as flare
import torch
from sklearn.datasets import load_digits
from torch import nn


def accuracy(net, x, y):
    net.eval()
    with torch.no_grad():
        return float((net(x).argmax(1) == y).float().mean())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--parts", type=int, default=2)
    args = parser.parse_args()
    x, y = load_digits(return_X_y=True)
    x = torch.tensor((x / 16).astype(np.float32)[args.part :: args.parts])
    y = torch.tensor(y[args.part :: args.parts])
    cut = int(0.8 * len(x))

    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    flare.init()
    while flare.is_running():
        input_model = flare.receive()
        net.load_state_dict(input_model.params)
        before = {name: value.clone() for name, value in net.state_dict().items()}
        metrics = {"accuracy": accuracy(net, x[cut:], y[cut:])}
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        net.train()
        for start in range(0, cut, 32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(
                net(x[start : min(start + 32, cut)]), y[start : min(start + 32, cut)]
            ).backward()
            optimizer.step()
        diff = {name: value - before[name] for name, value in net.state_dict().items()}
        flare.send(
            flare.FLModel(params_type="DIFF", params=diff, metrics=metrics, meta={"NUM_STEPS_CURRENT_ROUND": cut})
        )


if __name__ == "__main__":
    main()
