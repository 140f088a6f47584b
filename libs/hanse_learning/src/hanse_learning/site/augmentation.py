"""Random changes of training images, each example's own."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from hanse_fabric.errors import invalid
from hanse_learning.config import AugmentationConfig


def augment(x: Tensor, how: AugmentationConfig, generator: torch.Generator) -> Tensor:
    """Changed images; numbers are drawn on the processor, so that all devices have the same.

    Args:
        x: (n, channels, height, width) or (n, height, width).

    Raises:
        HanseError: INVALID_INPUT for examples that are no images, or smaller than the square that is cut out.
    """
    if x.dim() not in (3, 4):
        raise invalid(
            "train.augmentation", list(x.shape[1:]), "images, of shape [height, width] or [channels, height, width]"
        )
    height, width = x.shape[-2:]
    if how.cutout > min(height, width):
        raise invalid(
            "train.augmentation.cutout", how.cutout, f"at most {min(height, width)}, the images' shorter side"
        )
    made = x.unsqueeze(1) if x.dim() == 3 else x
    count = len(made)

    def drawn(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator)

    rows, columns = torch.arange(height).expand(count, -1), torch.arange(width).expand(count, -1)
    if how.crop:
        places = (drawn(2, count, 1) * (2 * how.crop + 1)).long()
        rows, columns = rows + places[0], columns + places[1]
        made = pad(made, (how.crop,) * 4)
    if how.flip:
        turned = (drawn(count) < how.flip)[:, None]
        columns = torch.where(turned, columns.flip(1), columns)
    if how.crop or how.flip:
        each = torch.arange(count)[:, None, None]
        made = made.movedim(1, -1)[each, rows[:, :, None], columns[:, None, :]].movedim(-1, 1)
    if how.color:
        bright, contrast = (1 + how.color * (2 * drawn(2, count, 1, 1, 1) - 1)).to(made)
        mean = made.mean((1, 2, 3), keepdim=True)
        made = (mean + (made - mean) * contrast) * bright
    if how.cutout:
        top = (drawn(count, 1) * (height - how.cutout + 1)).long()
        left = (drawn(count, 1) * (width - how.cutout + 1)).long()
        down, across = torch.arange(height) - top, torch.arange(width) - left  # (n, height), (n, width)
        cut = ((down >= 0) & (down < how.cutout))[:, :, None] & ((across >= 0) & (across < how.cutout))[:, None, :]
        made = made.masked_fill(cut[:, None].to(made.device), 0.0)
    return made.reshape(x.shape)


def copies_of(x: Tensor, how: AugmentationConfig, generator: torch.Generator) -> Tensor:
    """`how.copies` of each example, one after the other; the first is as it was: (n copies, *shape). A single copy is
    changed."""
    if how.copies == 1:
        return augment(x, how, generator)
    others = augment(x.repeat_interleave(how.copies - 1, dim=0), how, generator)
    return torch.cat([x[:, None], others.reshape(len(x), -1, *x.shape[1:])], dim=1).flatten(0, 1)
