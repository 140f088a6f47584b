"""Plain local training: FedAvg (McMahan et al., 2017) and its presets; with moments that survive rounds, if wanted."""

from __future__ import annotations

from dataclasses import replace

from hanse_learning.site.algorithms.common import OPTIMIZER, loss_of, run, trained
from hanse_learning.site.optimizers import make_optimizer
from hanse_learning.site.session import Session, Trained
from hanse_learning.site.training import LocalSteps


def train(session: Session) -> Trained:
    """See `registry.train_round`."""
    return train_with(session, LocalSteps(session.module, loss_of(session)), resumes=True)


def train_with(session: Session, local: LocalSteps, *, resumes: bool = False) -> Trained:
    """The same with other steps; `resumes` as in `run`."""
    config = session.config.optimizer
    begun = {name.removeprefix(OPTIMIZER): group for name, group in session.kept.items() if name.startswith(OPTIMIZER)}
    optimizer = make_optimizer(dict(session.module.named_parameters()), config, begun if config.across_rounds else None)
    made = trained(run(session, local, optimizer=optimizer, resumes=resumes))
    if not config.across_rounds:
        return made
    note = "the optimizer's moments were lost and begin anew" if session.lost else ""
    return replace(made, keep={OPTIMIZER + name: group for name, group in optimizer.moments().items()}, note=note)
