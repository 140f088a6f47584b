"""Personal lottery tickets: FedLTN (Mugunthan, 2022, chapter 4) and LotteryFL (Li et al., 2021).

Each site keeps a mask of its own and trains what the mask leaves of the received model: its ticket, which it evaluates.
Its update is of these weights alone; where a weight is pruned, it is zero, which the codec `nonzero` does not send. The
reduction `overlap_mean` averages each weight over the sites that tell of it.

FedLTN prunes after training, where the ticket is right on more of the held-out examples than the threshold, and trains
the pruned ticket on from where it is. LotteryFL looks before training, and rewinds to the first values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from hanse_fabric.errors import invalid
from hanse_learning.config.algorithms import FedLtnConfig, LotteryFlConfig
from hanse_learning.site import pruning
from hanse_learning.site.algorithms.common import loss_of, run, trained
from hanse_learning.site.algorithms.fedprox import Proximal
from hanse_learning.site.examples import Examples
from hanse_learning.site.losses import LossOf, class_logits, tensors
from hanse_learning.site.session import Session, Trained, arrays, copies
from hanse_learning.site.training import Descent

MASK = "mask"
FIRST = "first"
"""The groups of what a site keeps: a bit for each weight, and what it rewinds to, of the weights that are left."""
_BATCH = 1024
_SPLIT = 0x71C4E7
_LOST = "the mask was lost: this site's ticket is the whole model again"


class _Masked(Proximal):
    """Steps of the weights that masks keep, pulled towards an anchor with a strength."""

    def __init__(
        self, module: nn.Module, loss: LossOf, moving: Mapping[str, nn.Parameter], anchor: Mapping[str, Tensor],
        strength: float, weights: Mapping[str, nn.Parameter], masks: pruning.Masks,
    ) -> None:  # fmt: skip
        super().__init__(module, loss, moving, anchor, strength)
        self._masked = [(weight, masks[name].to(weight)) for name, weight in weights.items()]

    def gradients(self, x: Tensor, y: Tensor) -> Tensor:
        """See `LocalSteps`; before gradients are clipped, so that no pruned weight's counts."""
        loss = super().gradients(x, y)
        for weight, mask in self._masked:
            if weight.grad is not None:
                weight.grad.mul_(mask)
        return loss


class _Ticket:
    """A site's ticket within a round: the module's weights, masked, and what it learns and is measured by."""

    def __init__(self, session: Session, algorithm: FedLtnConfig | LotteryFlConfig) -> None:
        self.algorithm = algorithm
        self.shared = session.shared()
        self.weights = pruning.prunable(session, spare_output=algorithm.spare_output)
        self.received = copies(self.shared)
        learnt, self._held = _split(session.data, algorithm.validation)
        self._session = replace(session, data=learnt)
        self.masks = _masks_of(session, self.weights)
        self._first = _first_of(session, self.shared, self.masks) if algorithm.rewinds() else {}
        self._trainings = 0
        self.zero_pruned()

    def zero_pruned(self) -> None:
        pruning.zero_pruned(self.weights, self.masks)

    def train(self, *, align: float = 0.0, share: tuple[float, float]) -> Descent:
        """The configured epochs or steps, pulled by `align` towards where they begin."""
        anchor = copies(self.shared)
        local = _Masked(self._session.module, loss_of(self._session), self.shared, anchor, align, self.weights,
                        self.masks)  # fmt: skip
        self._trainings += 1
        seed = (self._session.seed + self._trainings - 1) % 2**63
        return run(self._session, local, seed=seed, share=share)

    def accuracy(self) -> float:
        """Of the held-out examples; of those it learns from, where none are held out."""
        session = self._session
        data = self._held if len(self._held) else session.data
        x, y = tensors(data, session.problem, session.module)
        session.module.eval()
        with torch.no_grad():
            said = [
                class_logits(session.module(part)).argmax(dim=1).eq(truth.long().reshape(-1))
                for part, truth in zip(torch.split(x, _BATCH), torch.split(y, _BATCH), strict=True)
            ]
        return float(torch.cat(said).double().mean())

    def prune(self, target: float) -> bool:
        """One step of pruning, with rewinding where that is asked; whether there was anything left to prune."""
        algorithm = self.algorithm
        masks = pruning.pruned(self.weights, self.masks, step=algorithm.step, target=target, of=algorithm.step_of)
        if pruning.same(masks, self.masks):
            return False
        self.masks = masks
        if self._first:
            with torch.no_grad():
                for name, parameter in self.shared.items():
                    parameter.copy_(self._first[name])
        self.zero_pruned()
        return True

    @torch.no_grad()
    def say_nothing_of_pruned(self) -> None:
        """Give pruned weights their received values, so that the update has zeros for them."""
        for name, weight in self.weights.items():
            mask = self.masks[name].to(weight.device)
            weight.copy_(torch.where(mask, weight, self.received[name]))

    def kept(self) -> dict[str, dict[str, np.ndarray]]:
        """What the site keeps: the mask, and of the first values those of weights that are left."""
        kept = {MASK: pruning.packed(self.masks)}
        if self._first:
            first = arrays(self._first)
            whole = {name: self.masks[name].numpy() if name in self.masks else np.True_ for name in first}
            kept[FIRST] = {name: array[np.broadcast_to(whole[name], array.shape)] for name, array in first.items()}
        return kept


def train(session: Session) -> Trained:
    """See `registry.train_round`.

    Raises:
        HanseError: INVALID_INPUT for regression, or a model without weights to prune.
    """
    algorithm = session.config.algorithm
    if not isinstance(algorithm, FedLtnConfig | LotteryFlConfig):
        raise invalid("train.algorithm.name", algorithm.name, "fedltn or lotteryfl")
    if session.problem.task != "classification":
        raise invalid("train.algorithm.name", algorithm.name, "an algorithm for regression",
                      hint="pruning waits for an accuracy, which is of classes")  # fmt: skip
    ticket = _Ticket(session, algorithm)
    if not ticket.weights:
        raise invalid("train.algorithm.name", algorithm.name, "a model with weights to prune among what travels")
    if isinstance(algorithm, LotteryFlConfig):
        made, jumped = _lottery_round(ticket, algorithm), False
    else:
        jump = algorithm.jump_start if session.round == 1 else None
        rounds, target = (1, algorithm.target) if jump is None else (jump.rounds, jump.target)
        made, jumped = _ltn_rounds(ticket, algorithm, rounds, target), jump is not None
    accuracy = ticket.accuracy()
    keep = ticket.kept()
    if not (jumped or (isinstance(algorithm, FedLtnConfig) and algorithm.zeros)):
        ticket.say_nothing_of_pruned()
    told = trained(made)
    return replace(
        told,
        metrics=told.metrics | {"pruned": pruning.share_pruned(ticket.masks), "validation_accuracy": accuracy},
        info={"steps": told.info["steps"], "jump_score": 1.0 + accuracy if jumped else 0.0},
        keep=keep, note=_LOST if session.lost else "",
    )  # fmt: skip


def adapt(session: Session) -> str:
    """See `registry.adapt`: the received model becomes this site's ticket."""
    algorithm = session.config.algorithm
    if not isinstance(algorithm, FedLtnConfig | LotteryFlConfig):
        raise invalid("train.algorithm.name", algorithm.name, "fedltn or lotteryfl")
    weights = pruning.prunable(session, spare_output=algorithm.spare_output)
    pruning.zero_pruned(weights, _masks_of(session, weights))
    return _LOST if session.lost else ""


def _ltn_rounds(ticket: _Ticket, algorithm: FedLtnConfig, rounds: int, target: float) -> Descent:
    for number in range(rounds):
        begin, middle, end = (2 * number) / (2 * rounds), (2 * number + 1) / (2 * rounds), (number + 1) / rounds
        made = ticket.train(align=algorithm.align, share=(begin, middle))
        if ticket.accuracy() > algorithm.threshold and ticket.prune(target):
            again = ticket.train(share=(middle, end))
            made = replace(again, steps=made.steps + again.steps)
    return made


def _lottery_round(ticket: _Ticket, algorithm: LotteryFlConfig) -> Descent:
    if ticket.accuracy() > algorithm.threshold:
        ticket.prune(algorithm.target)
    return ticket.train(share=(0.0, 1.0))


def _split(data: Examples, share: float) -> tuple[Examples, Examples]:
    """The examples to learn from, one at least, and those held out; the same in every round."""
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(_SPLIT)).numpy()
    held = min(round(share * len(data)), len(data) - 1)
    return data.take(np.sort(order[held:])), data.take(np.sort(order[:held]))


def _masks_of(session: Session, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    bits = {name: torch.empty(-(-weight.numel() // 8), dtype=torch.uint8) for name, weight in weights.items()}
    kept = session.kept_as(MASK, bits)
    return pruning.whole(weights) if kept is None else pruning.unpacked(kept, weights)


def _first_of(session: Session, shared: Mapping[str, Tensor], masks: pruning.Masks) -> dict[str, Tensor]:
    """What is rewound to: the model that the site got in its first round."""
    left = {name: masks[name].to(value.device) if name in masks else torch.ones_like(value, dtype=torch.bool)
            for name, value in shared.items()}  # fmt: skip
    kept = session.kept_as(FIRST, {name: value.detach()[left[name]] for name, value in shared.items()})
    if kept is None:
        return copies(shared)
    first = {name: torch.zeros_like(value.detach()) for name, value in shared.items()}
    for name, value in first.items():
        value[left[name]] = kept[name]
    return first
