"""Algorithms by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hanse_fabric.errors import invalid
from hanse_learning.site.algorithms import (
    accumulation,
    ditto,
    feddyn,
    fedprox,
    fedrep,
    fedtan,
    moon,
    per_fedavg,
    plain,
    scaffold,
)
from hanse_learning.site.algorithms.common import mean_loss
from hanse_learning.site.devices import device_of
from hanse_learning.site.session import Session, Trained
from hanse_learning.site.training import make_repeatable, require_examples

Algorithm = Callable[[Session], Trained]

ALGORITHMS: dict[str, Algorithm] = {
    "fedavg": plain.train,
    "fedsgd": plain.train,
    "fedfgd": plain.train,
    "fedsmb": plain.train,
    "fedcmb": plain.train,
    "fedprox": fedprox.train,
    "scaffold": scaffold.train,
    "feddyn": feddyn.train,
    "moon": moon.train,
    "ditto": ditto.train,
    "fedrep": fedrep.train,
    "per_fedavg": per_fedavg.train,
    "weighted_accumulation": accumulation.train,
    "fedtan": fedtan.train,
}
_ADAPTED: dict[str, Callable[[Session], str]] = {"ditto": ditto.adapt, "per_fedavg": per_fedavg.adapt}


def train_round(session: Session) -> Trained:
    """Train the session's module in place, as its algorithm does.

    Raises:
        HanseError: as `training.descend`; CONFLICT where something was lost that the algorithm cannot do without;
            INVALID_INPUT where what was kept, or came beside the model, is of another model.
    """
    name = session.config.algorithm.name
    if name not in ALGORITHMS:
        raise invalid("train.algorithm.name", name, "one of " + ", ".join(sorted(ALGORITHMS)))
    require_examples(session.data)
    make_repeatable(session.seed, device_of(session.module))
    first = {"first_loss": mean_loss(session)} if "first_loss" in session.wanted else {}
    made = ALGORITHMS[name](session)
    return replace(made, info=made.info | first)


def adapt(session: Session) -> str:
    """Make the module, with the received values, the one that this site would use: its personal one, where there is
    one. Returns a note for the owner, mostly empty."""
    make_repeatable(session.seed, device_of(session.module))
    adapted = _ADAPTED.get(session.config.algorithm.name)
    return "" if adapted is None else adapted(session)
