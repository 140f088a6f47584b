"""Modules in training, of which some layers may have frozen batch statistics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

_FROZEN = "hanse_frozen"
BATCH_NORMS = (nn.modules.batchnorm._BatchNorm, nn.SyncBatchNorm)


def set_training(module: nn.Module) -> None:
    """Put the module into training mode; layers of frozen statistics use these instead of the batch's."""
    module.train()
    for part in module.modules():
        if getattr(part, _FROZEN, False):
            part.eval()


def freeze_statistics(part: nn.Module, *, frozen: bool) -> None:
    """Have a layer use its statistics as they are, or those of each batch again."""
    setattr(part, _FROZEN, frozen)


def normalizes_batches(module: nn.Module) -> bool:
    """Whether a layer in training mode takes statistics of the batch, which one example does not have."""
    return any(isinstance(part, BATCH_NORMS) and part.training for part in module.modules())


@contextmanager
def untouched_buffers(module: nn.Module) -> Iterator[None]:
    """Within it, forward passes may change buffers; afterwards they are as before."""
    before = [buffer.detach().clone() for buffer in module.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in zip(module.buffers(), before, strict=True):
                buffer.copy_(value)
