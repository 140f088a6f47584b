"""A PyTorch Lightning module, trained with other hospitals: each round is one `trainer.fit` on the site's own loader.

The loop is the same as in `sklearn_digits.py`; a module's `state_dict()` goes in and comes back as it is.
"""

import logging

import pytorch_lightning as lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


class Digits(lightning.LightningModule):
    """64 pixels, 32 hidden units, ten digits."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, x):
        return self.layers(x)

    def training_step(self, batch, _number):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.3)


def share(part, parts):
    """This site's data: (training, test)."""
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x[part::parts] / 16, dtype=torch.float32), torch.tensor(y[part::parts])
    held = len(y) // 5
    return TensorDataset(x[held:], y[held:]), TensorDataset(x[:held], y[:held])


def take_part(site, part, parts):
    """Answer tasks until the site is closed."""
    train, test = share(part, parts)
    module = Digits()
    for task in site.tasks():
        if task.kind == "initialize":
            torch.manual_seed(task.seed % 2**63)
            task.push(Digits().state_dict(), examples=0)
            continue
        module.load_state_dict(task.model(like=module.state_dict()))
        if task.kind == "train":
            order = torch.Generator().manual_seed(task.seed % 2**63)
            loader = DataLoader(train, batch_size=32, shuffle=True, generator=order)
            trainer = lightning.Trainer(
                max_epochs=task.config["train"].get("epochs", 1), accelerator="cpu", devices=1, logger=False,
                enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            )  # fmt: skip
            trainer.fit(module, loader)
            task.push(module.state_dict(), examples=len(train))
        else:
            x, y = test.tensors
            with torch.no_grad():
                right = (module(x).argmax(1) == y).float().mean()
            task.report(examples=len(y), metrics={"accuracy": right})
