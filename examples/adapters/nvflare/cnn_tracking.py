"""NVFlare, Client API: a convolutional network in PyTorch on scikit-learn's digits, with metrics for TensorBoard."""

import argparse

import numpy as np
import nvflare.client as flare
import torch
import torch.nn as nn
import torch.nn.functional as F
from nvflare.client.tracking import SummaryWriter
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


class SimpleNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3, padding=1)
        self.norm1 = nn.GroupNorm(2, 6)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 12, 3, padding=1)
        self.fc1 = nn.Linear(12 * 2 * 2, 10)

    def forward(self, x):
        x = self.pool(F.relu(self.norm1(self.conv1(x))))
        x = self.pool(F.relu(self.conv2(x)))
        return self.fc1(torch.flatten(x, 1))


def get_data(part, parts):
    digits = load_digits()
    images = torch.tensor((digits.images / 16).astype(np.float32)).unsqueeze(1)[part::parts]
    labels = torch.tensor(digits.target)[part::parts]
    cut = int(0.8 * len(labels))
    return TensorDataset(images[:cut], labels[:cut]), TensorDataset(images[cut:], labels[cut:])


def evaluate(net, loader, device):
    net.eval()
    correct = 0
    with torch.no_grad():
        for images, labels in loader:
            correct += (net(images.to(device)).argmax(1) == labels.to(device)).sum().item()
    return correct / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--parts", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()

    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    train_set, test_set = get_data(args.part, args.parts)
    test_loader = DataLoader(test_set, batch_size=256)

    flare.init()
    sys_info = flare.system_info()
    client_name = sys_info["site_name"]
    print(f"{client_name}: {len(train_set)} images to train on")
    summary_writer = SummaryWriter()

    while flare.is_running():
        input_model = flare.receive()
        print(f"{client_name}: round {input_model.current_round}")

        net = SimpleNetwork()
        net.load_state_dict(input_model.params)
        net.to(device)
        accuracy = evaluate(net, test_loader, device)
        summary_writer.add_scalar(tag="global_accuracy", scalar=accuracy, global_step=input_model.current_round)

        criterion = nn.CrossEntropyLoss()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        shuffle = torch.Generator().manual_seed(args.part)
        train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, generator=shuffle)
        net.train()
        steps = args.epochs * len(train_loader)
        for _ in range(args.epochs):
            for images, labels in train_loader:
                optimizer.zero_grad()
                loss = criterion(net(images.to(device)), labels.to(device))
                loss.backward()
                optimizer.step()
        summary_writer.add_scalar(tag="loss", scalar=loss.item(), global_step=input_model.current_round)

        flare.send(
            flare.FLModel(
                params=net.cpu().state_dict(),
                metrics={"accuracy": accuracy},
                meta={"NUM_STEPS_CURRENT_ROUND": steps},
            )
        )


if __name__ == "__main__":
    main()
