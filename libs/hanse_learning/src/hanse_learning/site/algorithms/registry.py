"""A round's training and adaptation by the algorithm that the session's configuration names."""

from __future__ import annotations

from dataclasses import replace

from hanse_learning.site.algorithms.common import mean_loss
from hanse_learning.site.devices import device_of
from hanse_learning.site.session import Session, Trained
from hanse_learning.site.training import make_repeatable, require_examples


def train_round(session: Session) -> Trained:
    """Train the session's module in place, as its algorithm does.

    Raises:
        HanseError: as `training.descend`; CONFLICT where something was lost that the algorithm cannot do without;
            INVALID_INPUT where what was kept, or came beside the model, is of another model.
    """
    require_examples(session.data)
    make_repeatable(session.seed, device_of(session.module))
    first = {"first_loss": mean_loss(session)} if "first_loss" in session.wanted else {}
    made = session.config.algorithm.train(session)
    return replace(made, info=made.info | first)


def adapt(session: Session) -> str:
    """Make the module, with the received values, the one that this site would use: its personal one, where there is
    one. Returns a note for the owner, mostly empty."""
    make_repeatable(session.seed, device_of(session.module))
    return session.config.algorithm.adapt(session)
