"""The model, the data, and how one is trained on the other."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(64, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


def load_data(partition_id, num_partitions):
    x, y = load_digits(return_X_y=True)
    x, y = (x / 16).astype(np.float32)[partition_id::num_partitions], y[partition_id::num_partitions]
    cut = int(0.8 * len(x))
    train = TensorDataset(torch.tensor(x[:cut]), torch.tensor(y[:cut]))
    test = TensorDataset(torch.tensor(x[cut:]), torch.tensor(y[cut:]))
    return DataLoader(train, batch_size=32, shuffle=False), DataLoader(test, batch_size=256)


def train(net, loader, epochs, lr):
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    net.train()
    total = 0.0
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total / (epochs * len(loader))


def test(net, loader):
    net.eval()
    loss, correct, count = 0.0, 0, 0
    with torch.no_grad():
        for x, y in loader:
            out = net(x)
            loss += nn.functional.cross_entropy(out, y, reduction="sum").item()
            correct += (out.argmax(1) == y).sum().item()
            count += len(y)
    return loss / count, correct / count
