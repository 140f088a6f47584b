"""personal: the two parts of the model; each client has another set of digits, with labels of its own."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn


class Personal(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 24), nn.ReLU())
        self.head = nn.Linear(24, 10)

    def forward(self, x):
        return self.head(self.body(x))


def load_data(context):
    index, count = context.node_config["partition-id"], context.node_config["num-partitions"]
    x, y = load_digits(return_X_y=True)
    x = torch.tensor((x / 16).astype(np.float32)[index::count])
    y = (torch.tensor(y[index::count]) + index) % 10
    cut = int(0.8 * len(y))
    return (x[:cut], y[:cut]), (x[cut:], y[cut:])
