"""Segmenting images by MONAI's U-Net, with other hospitals: Dice loss in training, Dice as the metric.

The images are scikit-learn's digits under noise, so that nothing is downloaded; the mask is where the pen was.
"""

import torch
from monai.losses import DiceLoss
from monai.metrics import DiceMetric
from monai.networks.nets import UNet
from sklearn.datasets import load_digits


def network(seed=0):
    """A U-Net of two levels; instance norm has no statistics that sites would have to agree on."""
    torch.manual_seed(seed % 2**63)
    return UNet(spatial_dims=2, in_channels=1, out_channels=1, channels=(8, 16), strides=(2,), norm="INSTANCE")


def share(part, parts, count=120):
    """This site's images and masks, (n, 1, 16, 16)."""
    clear = torch.tensor(load_digits().images[part::parts][:count], dtype=torch.float32)[:, None] / 16
    clear = torch.nn.functional.interpolate(clear, scale_factor=2)
    made = torch.Generator().manual_seed(part)
    return clear + 0.3 * torch.randn(clear.shape, generator=made), (clear > 0.5).float()


def take_part(site, part, parts):
    """Answer tasks until the site is closed."""
    images, masks = share(part, parts)
    held = len(images) // 5
    model = network()
    for task in site.tasks():
        if task.kind == "initialize":
            task.push(network(task.seed).state_dict(), examples=0)
            continue
        model.load_state_dict(task.model(like=model.state_dict()))
        if task.kind == "train":
            train(model, images[held:], masks[held:], task)
            task.push(model.state_dict(), examples=len(images) - held)
        else:
            model.eval()
            with torch.no_grad():
                found = (model(images[:held]).sigmoid() > 0.5).float()
            dice = DiceMetric(reduction="mean")(found, masks[:held]).nanmean()
            task.report(examples=held, metrics={"dice": dice})


def train(model, images, masks, task):
    """Some passes over this site's images."""
    model.train()
    loss, optimizer = DiceLoss(sigmoid=True), torch.optim.Adam(model.parameters(), lr=5e-3)
    order = torch.Generator().manual_seed(task.seed % 2**63)
    for _ in range(task.config["train"].get("epochs", 1)):
        for batch in torch.randperm(len(images), generator=order).split(16):
            optimizer.zero_grad()
            loss(model(images[batch]), masks[batch]).backward()
            optimizer.step()
