"""Several processes of one site take each training step together: every one has a share of the batch.

Each process (a rank) has all of the site's data and draws the same batches from the same seed. A step's gradient is
the sum of the ranks' gradients, each times its share of the batch, and so the whole batch's, up to rounding: whatever
the algorithm does with it then, all ranks do alike. DistributedDataParallel would take a plain mean of equal shares,
through one forward pass; here the shares may differ, and a step may have several passes, or gradients of single
examples.

Layers that normalize batches take the statistics of all ranks' shares (`shared_statistics`). What dropout draws differs
from rank to rank; everything else that is drawn is the same.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_learning.site.modes import normalizes_batches
from hanse_learning.site.shared_statistics import shared_statistics
from hanse_learning.site.sums import Floats
from hanse_privacy.noise.source import KEY_BYTES, NoiseSource

if TYPE_CHECKING:
    from hanse_learning.site.training import LocalSteps

_PATIENCE = timedelta(hours=1)
LOOPBACK = "lo"
"""The network interface by which ranks speak to each other."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among those of the site, which all call the same methods in the same order.

    Attributes:
        rank: from 0, which speaks for all.
        count: of all ranks.
    """

    rank: int
    count: int

    def share(self, examples: int) -> slice:
        """Which of a batch's examples are this rank's; they differ by one at most, and may be none."""
        return slice(self.rank * examples // self.count, (self.rank + 1) * examples // self.count)

    def device(self, chosen: str) -> str:
        """Torch's name of this rank's device, where `chosen` is the site's: on CUDA, each has one of its own."""
        return f"cuda:{self.rank}" if chosen.startswith("cuda") else chosen

    def add(self, values: Tensor) -> Tensor:
        """The sum of all ranks' values, in place: the same bits at all of them."""
        torch.distributed.all_reduce(values)
        return values

    def source(self) -> NoiseSource:
        """One fresh source of randomness for all ranks: they draw the same, so noise that each adds counts once."""
        key = torch.frombuffer(bytearray(os.urandom(KEY_BYTES)), dtype=torch.uint8)
        torch.distributed.broadcast(key, src=0)
        return NoiseSource(bytes(key.tolist()))

    def gradients(self, local: LocalSteps, x: Tensor, y: Tensor) -> Tensor:
        """As `LocalSteps.gradients` of the whole batch x (n, ...), y (n, ...), of which this rank works on a share."""
        own = self.share(len(x))
        examples = own.stop - own.start
        # Fewer examples than ranks: rank 0 speaks for the whole batch, for a layer would wait for those without any.
        alone = len(x) < self.count
        if alone:
            own, examples = slice(None), len(x) if self.rank == 0 else 0
        statistics = normalizes_batches(local.module) and not alone
        drawn = int(torch.randint(1 << 62, ()))
        state = torch.get_rng_state()
        torch.default_generator.manual_seed(drawn + self.rank)
        together = shared_statistics(local.module, self._sums(), examples) if statistics else nullcontext()
        with together:
            loss = local.gradients(x[own], y[own])
        torch.set_rng_state(state)
        self._add_gradients(local.module, examples / len(x))
        if alone:
            for buffer in local.module.buffers():
                torch.distributed.broadcast(buffer, src=0)
        return self.add(loss * (examples / len(x)) if examples else torch.zeros_like(loss))

    def require_same(self, module: nn.Module) -> None:
        """Check that all ranks have the same parameters, to the bit.

        Raises:
            HanseError: INTERNAL.
        """
        for name, parameter in module.named_parameters():
            first = parameter.detach().clone()
            torch.distributed.broadcast(first, src=0)
            differs = torch.tensor([float(not torch.equal(first, parameter))], device=parameter.device)
            if float(self.add(differs)):
                raise HanseError(
                    ErrorCode.INTERNAL, f"parameter {name} differs between the {self.count} processes that train it",
                    hint="train in one process (the policy's limits.processes), and report it",
                )  # fmt: skip

    def _add_gradients(self, module: nn.Module, share: float) -> None:
        """All gradients in one sum: a message for each would cost more than its bytes."""
        moving = [parameter for parameter in module.parameters() if parameter.requires_grad]
        # A gradient that this rank's examples do not have counts as zero, where another rank may have one.
        has = self.add(torch.tensor([float(parameter.grad is not None) for parameter in moving]).to(moving[0].device))
        given = [parameter for parameter, ranks in zip(moving, has.tolist(), strict=True) if ranks]
        if not given:
            return
        flat = torch.cat([_gradient(parameter).flatten() for parameter in given])
        # Not a number times zero is none.
        flat = self.add(flat.mul_(share) if share else torch.zeros_like(flat))
        for parameter, piece in zip(given, torch.split(flat, [each.numel() for each in given]), strict=True):
            parameter.grad = piece.view_as(parameter)

    def _sums(self) -> _Sums:
        return _Sums(self)


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums over the ranks, as `hanse_learning.site.sums.Sums`."""

    ranks: Ranks

    def sum(self, key: str, values: Floats) -> Floats:  # noqa: ARG002 - all ranks sum in the same order
        total: Floats = self.ranks.add(torch.from_numpy(values.astype("float64"))).numpy()
        return total

    def end(self) -> None:
        return


def _gradient(parameter: nn.Parameter) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def join(environment: Mapping[str, str] = os.environ, *, device: str = "cpu") -> Ranks:
    """Join the other ranks, by the variables that `torchrun` gives each (RANK, WORLD_SIZE, MASTER_ADDR, ...).

    On the processor by gloo, on CUDA by NCCL; over the machine's loopback.

    Args:
        device: torch's name of this rank's device.
    """
    os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
    backend = "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group(backend, timeout=_PATIENCE)
    if device.startswith("cuda"):
        torch.cuda.set_device(device)
    return Ranks(int(environment["RANK"]), int(environment["WORLD_SIZE"]))


def withdraw() -> None:
    """Leave the other ranks, where this process has joined any: nothing of the group's may be at work when it ends."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
