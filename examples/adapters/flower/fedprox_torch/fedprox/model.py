"""fedprox: a perceptron, and partitions that differ in size."""

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from torch import nn


class Classifier(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(30, 16), nn.Tanh(), nn.Linear(16, 2))


def load_partition(**node_config):
    index, count = node_config["partition-id"], node_config["num-partitions"]
    x, y = load_breast_cancer(return_X_y=True)
    x = torch.tensor(((x - x.mean(axis=0)) / x.std(axis=0)).astype(np.float32))
    y = torch.tensor(y)
    shares = np.arange(1, count + 1) / sum(range(1, count + 1))
    ends = (np.cumsum(shares) * len(y)).round().astype(int)
    begin, end = (0 if index == 0 else ends[index - 1]), ends[index]
    x, y = x[begin:end], y[begin:end]
    cut = int(0.75 * len(y))
    return x[:cut], y[:cut], x[cut:], y[cut:]
