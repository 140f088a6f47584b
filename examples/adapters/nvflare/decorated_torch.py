"""NVFlare, Client API by decorators: `flare.train` and `flare.evaluate` receive and send the model."""

import argparse

import numpy as np
import nvflare.client as flare
import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--part", type=int, default=0)
parser.add_argument("--parts", type=int, default=2)
args = parser.parse_args()

x, y = load_breast_cancer(return_X_y=True)
x = torch.tensor(((x - x.mean(axis=0)) / x.std(axis=0)).astype(np.float32)[args.part :: args.parts])
y = torch.tensor(y.astype(np.float32)[args.part :: args.parts])
cut = int(0.75 * len(y))
net = nn.Sequential(nn.Linear(30, 8), nn.ReLU(), nn.Linear(8, 1))


@flare.train
def train(input_model=None, epochs=4):
    net.load_state_dict(input_model.params)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.5)
    for _ in range(epochs):
        for batch in torch.arange(cut).split(25):
            optimizer.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(net(x[batch]).squeeze(1), y[batch]).backward()
            optimizer.step()
    return flare.FLModel(params=net.state_dict(), meta={"NUM_STEPS_CURRENT_ROUND": epochs * -(-cut // 25)})


@flare.evaluate
def fl_evaluate(input_model=None):
    net.load_state_dict(input_model.params)
    with torch.no_grad():
        accuracy = ((net(x[cut:]).squeeze(1) > 0) == y[cut:].bool()).float().mean().item()
    return {"accuracy": accuracy}


def main():
    flare.init()
    while flare.is_running():
        input_model = flare.receive()
        metrics = fl_evaluate(input_model)
        print(f"round {input_model.current_round}: accuracy {metrics['accuracy']:.4f}")
        train(input_model)


if __name__ == "__main__":
    main()
