"""One round of training at one site, as arrays: what it is given and what it makes. No file is read or written here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_learning.config import TrainConfig
from hanse_learning.site.checkpoints import Checkpoints
from hanse_learning.site.examples import Examples, Problem
from hanse_learning.site.ranks import Ranks
from hanse_learning.site.sums import Sums

Arrays = Mapping[str, np.ndarray]
Groups = Mapping[str, Arrays]
"""What an algorithm keeps at the site from round to round: arrays by group and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What is given.

    Attributes:
        module: with the received values, and the site's own of what is local; it is trained in place.
        seed: of the site in this round.
        round: from 1.
        local: names of the entries that stay at the site.
        kept: of the site's last round that counted; empty where there was none.
        lost: whether there was one, but what was kept of it is not there any more.
        extras: arrays in the model's layout that the algorithm exchanges, by name; absent in the first round.
        wanted: numbers that the strategy needs beside those that always come: `first_loss`.
        on_progress: called with the fraction done and a short text.
        sums: over all participants, in the middle of training; None where there can be none.
        ranks: the processes of this site that train together; None: this one alone.
        memory: bytes that the task may use; None: no limit is known.
        checkpoints: where ends of epochs are kept, to go on from after a crash; None: training begins anew then.
    """

    module: nn.Module
    data: Examples
    config: TrainConfig
    problem: Problem
    seed: int
    round: int = 1
    local: frozenset[str] = frozenset()
    kept: Groups = field(default_factory=dict)
    lost: bool = False
    extras: Groups = field(default_factory=dict)
    wanted: frozenset[str] = frozenset()
    on_progress: Callable[[float, str], None] = lambda _fraction, _text: None
    sums: Sums | None = None
    ranks: Ranks | None = None
    memory: int | None = None
    checkpoints: Checkpoints | None = None

    def shared(self) -> dict[str, nn.Parameter]:
        """The parameters that travel and are trained."""
        named = self.module.named_parameters()
        return {name: parameter for name, parameter in named if name not in self.local and parameter.requires_grad}

    def own(self) -> dict[str, nn.Parameter]:
        """The parameters that stay, and are trained."""
        named = self.module.named_parameters()
        return {name: parameter for name, parameter in named if name in self.local and parameter.requires_grad}

    def kept_as(self, name: str, like: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
        """What was kept under `name`, as tensors of the names and shapes of `like`; None where nothing was.

        Raises:
            HanseError: INVALID_INPUT where it is of another model.
        """
        return _tensors(f"what this site keeps ({name})", self.kept[name], like) if name in self.kept else None

    def came_with(self, name: str, like: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
        """What came beside the model under `name`, as `kept_as`; None in the first round.

        Raises:
            HanseError: INVALID_INPUT where it is of another model.
        """
        return _tensors(f"task.extras.{name}", self.extras[name], like) if name in self.extras else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What was made, beside the module's new values.

    Attributes:
        metrics: `loss`, `steps`.
        info: `steps`, `normalizer`, and what was wanted; for the strategy.
        extras: changes for the server, by name: arrays of the parameters that travel.
        keep: for the site's next round.
        note: for the owner; empty where there is nothing to say.
    """

    metrics: dict[str, float]
    info: dict[str, float]
    extras: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    keep: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    note: str = ""


def copies(named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The values as they are now."""
    return {name: tensor.detach().clone() for name, tensor in named.items()}


def arrays(named: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """The values as they are now, as arrays of their own."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in named.items()}


def require_kept(session: Session, what: str) -> None:
    """Refuse to go on without what the server counts on this site to have kept.

    Raises:
        HanseError: CONFLICT.
    """
    if session.lost:
        raise HanseError(
            ErrorCode.CONFLICT,
            f"round {session.round}: this site's {what} of its former rounds of the run is not there any more, and the "
            "server's state counts on it",
            hint="restore the datapod's home folder, or start another run",
        )


def _tensors(what: str, given: Arrays, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    made = {}
    for name, tensor in like.items():
        array = given.get(name)
        if array is None or tuple(array.shape) != tuple(tensor.shape):
            has = "nothing" if array is None else list(array.shape)
            raise HanseError(
                ErrorCode.INVALID_INPUT,
                f"{what}: entry {name} is {has}, {list(tensor.shape)} was expected; the model has changed",
                hint="a run has one model from its first round to its last; start another run",
            )
        made[name] = torch.from_numpy(np.array(array)).to(tensor)  # its dtype and device
    return made
