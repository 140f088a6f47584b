"""Ditto (Li et al., 2021): beside the shared model a personal one, pulled towards the received values.

The shared model is trained as ever and sent. The personal one, all entries of it, is kept; it begins as the first
received model, and is the one that the site evaluates.
"""

from __future__ import annotations

import copy
from dataclasses import replace

from hanse_fabric.errors import invalid
from hanse_learning.config import DittoConfig
from hanse_learning.site.algorithms.common import loss_of, run, trained
from hanse_learning.site.algorithms.fedprox import Proximal
from hanse_learning.site.devices import device_of
from hanse_learning.site.session import Session, Trained, arrays, copies
from hanse_learning.site.training import LocalSteps, length_of, make_repeatable

PERSONAL = "personal"
_LOST = "the personal model was lost and begins anew as the received one"


def train(session: Session) -> Trained:
    """See `registry.train_round`."""
    algorithm = session.config.algorithm
    if not isinstance(algorithm, DittoConfig):
        raise invalid("train.algorithm.name", algorithm.name, "ditto")
    shared = session.shared()
    received, personal = copies(shared), copy.deepcopy(session.module)
    kept = session.kept_as(PERSONAL, personal.state_dict())
    if kept is not None:
        personal.load_state_dict(kept)
    made = trained(run(session, LocalSteps(session.module, loss_of(session)), share=(0.0, 0.5)))
    make_repeatable(session.seed, device_of(personal))
    moving = {name: each for name, each in personal.named_parameters() if name in shared}
    local = Proximal(personal, loss_of(session), moving, received, algorithm.pull)
    configured, per_epoch = length_of(session.config, len(session.data))
    total = algorithm.steps or (algorithm.epochs or 0) * per_epoch or configured
    own = run(session, local, total=total, share=(0.5, 1.0))
    return replace(
        made, metrics=made.metrics | {"personal_loss": own.loss}, keep={PERSONAL: arrays(personal.state_dict())},
        note=_LOST if session.lost else "",
    )  # fmt: skip


def adapt(session: Session) -> str:
    """See `registry.adapt`."""
    kept = session.kept_as(PERSONAL, session.module.state_dict())
    if kept is not None:
        session.module.load_state_dict(kept)
    return _LOST if session.lost else ""
