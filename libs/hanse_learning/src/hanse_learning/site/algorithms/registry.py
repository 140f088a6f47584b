"""A round's training and adaptation by the algorithm that the session's configuration names."""

from __future__ import annotations

from dataclasses import replace

from hanse_fabric.errors import ErrorCode, HanseError, invalid, unfit
from hanse_fabric.plugins import ALGORITHMS, find, names
from hanse_learning.site.algorithms.common import mean_loss
from hanse_learning.site.devices import device_of
from hanse_learning.site.session import Session, Trained
from hanse_learning.site.training import make_repeatable, require_examples


def train_round(session: Session) -> Trained:
    """Train the session's module in place, as its algorithm does.

    Raises:
        HanseError: as `training.descend`; TRAINING_FAILED naming a plug-in that raises; CONFLICT where something was
            lost that the algorithm cannot do without; INVALID_INPUT where what was kept, or came beside the model, is
            of another model.
    """
    require_examples(session.data)
    make_repeatable(session.seed, device_of(session.module))
    first = {"first_loss": mean_loss(session)} if "first_loss" in session.wanted else {}
    made = _trained(session)
    if session.ranks is not None:
        session.ranks.require_same(session.module)
    return replace(made, info=made.info | first)


def _trained(session: Session) -> Trained:
    algorithm = session.config.algorithm
    try:
        made = algorithm.train(session)
    except (HanseError, MemoryError):
        raise
    except Exception as error:
        known = algorithm.name in names(ALGORITHMS)  # in a notebook, it need not be
        if not known or (reason := find(ALGORITHMS, algorithm.name).blamed(error)) is None:
            raise
        raise unfit(reason, str(error), code=ErrorCode.TRAINING_FAILED, hint="see the datapod's log") from error
    if not isinstance(made, Trained):
        raise invalid(f"algorithm {algorithm.name}: train", made, "a Trained of hanse_learning.site.session")
    return made


def adapt(session: Session) -> str:
    """Make the module, with the received values, the one that this site would use: its personal one, where there is
    one. Returns a note for the owner, mostly empty."""
    make_repeatable(session.seed, device_of(session.module))
    return session.config.algorithm.adapt(session)
