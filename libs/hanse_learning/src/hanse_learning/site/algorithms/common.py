"""What the algorithms share."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hanse_learning.site.losses import LossOf, loss_function, tensors
from hanse_learning.site.mapped import ahead_of
from hanse_learning.site.modes import set_training, untouched_buffers
from hanse_learning.site.optimizers import Optimizer, make_optimizer
from hanse_learning.site.session import Session, Trained
from hanse_learning.site.training import Descent, LocalSteps, descend

_BATCH = 1024
OPTIMIZER = "optimizer."
"""Prefix of the groups in which an optimizer's moments are kept."""


def loss_of(session: Session) -> LossOf:
    """The configured loss."""
    return loss_function(session.problem, session.config)


def examples(session: Session, module: nn.Module | None = None) -> tuple[Tensor, Tensor]:
    """(inputs, targets, with weights where the loss takes them) in the module's dtype."""
    weighted = session.config.sample_weights
    return tensors(session.data, session.problem, module or session.module, weighted=weighted)


def run(
    session: Session, local: LocalSteps, *, optimizer: Optimizer | None = None, seed: int | None = None,
    total: int | None = None, share: tuple[float, float] = (0.0, 1.0), resumes: bool = False,
) -> Descent:  # fmt: skip
    """Take local steps on the session's examples.

    Args:
        resumes: whether a training that was cut off may go on from the end of an epoch: these steps are all of the
            round's, and `local` keeps nothing from step to step.
        optimizer: a fresh one of all parameters that are trained by default.
        total: steps; as configured by default.
        share: of the round's progress: from and to.
    """
    x, y = examples(session, local.module)
    made = optimizer or make_optimizer(dict(local.module.named_parameters()), session.config.optimizer)
    begin, end = share
    return descend(
        local, x, y, session.config, made, seed=session.seed if seed is None else seed, total=total,
        round_number=session.round, ranks=session.ranks, checkpoints=session.checkpoints if resumes else None,
        ahead=ahead_of(session.data.x),
        on_progress=lambda done, text: session.on_progress(begin + (end - begin) * done, text),
    )  # fmt: skip


def trained(made: Descent) -> Trained:
    """What every algorithm tells of its steps."""
    steps = float(made.steps)
    known = {} if made.normalizer is None else {"normalizer": made.normalizer}
    return Trained(metrics={"loss": made.loss, "steps": steps}, info={"steps": steps} | known)


def mean_loss(session: Session) -> float:
    """The received model's loss over all of the site's examples, as in evaluation: without dropout, with the running
    statistics."""
    x, y = examples(session)
    measure = loss_of(session)
    session.module.eval()
    with torch.no_grad():
        parts = zip(torch.split(x, _BATCH), torch.split(y, _BATCH), strict=True)
        return sum(float(measure(session.module(a), b)) * len(a) for a, b in parts) / len(x)


def full_gradient(session: Session, named: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    """The loss's gradient over all of the site's examples, weight decay included, at the module's present values.

    The module's own gradients are cleared; its buffers stay as they are.
    """
    x, y = examples(session)
    measure = loss_of(session)
    decay = session.config.optimizer.weight_decay
    total = {name: parameter.detach() * decay for name, parameter in named.items()}
    pieces = -(-len(x) // _BATCH)  # of nearly equal size: batch norm cannot take a single example
    with untouched_buffers(session.module):
        set_training(session.module)
        for a, b in zip(torch.tensor_split(x, pieces), torch.tensor_split(y, pieces), strict=True):
            session.module.zero_grad(set_to_none=True)
            measure(session.module(a), b).backward()  # type: ignore[no-untyped-call]
            for name, parameter in named.items():
                if parameter.grad is not None:
                    total[name].add_(parameter.grad, alpha=len(a) / len(x))
    session.module.zero_grad(set_to_none=True)
    return total
