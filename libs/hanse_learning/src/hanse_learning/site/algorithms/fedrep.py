"""FedRep (Collins et al., 2021): first the site's own entries are trained alone, then the shared ones alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from torch import nn

from hanse_fabric.errors import invalid
from hanse_learning.config import FedRepConfig
from hanse_learning.site.algorithms.common import loss_of, run, trained
from hanse_learning.site.session import Session, Trained
from hanse_learning.site.training import LocalSteps, length_of


def train(session: Session) -> Trained:
    """See `registry.train_round`.

    Raises:
        HanseError: INVALID_INPUT where either part of the model is empty.
    """
    algorithm = session.config.algorithm
    if not isinstance(algorithm, FedRepConfig):
        raise invalid("train.algorithm.name", algorithm.name, "fedrep")
    own, shared = session.own(), session.shared()
    if not own or not shared:
        raise invalid(
            "model.state",
            "all entries local" if own else "no entries local",
            "some of each, which fedrep trains in turn",
        )
    local = LocalSteps(session.module, loss_of(session))
    epochs = algorithm.head_epochs * length_of(session.config.model_copy(update={"steps": None, "epochs": 1}),
                                               len(session.data))[0]  # fmt: skip
    with _fixed(shared.values()):
        head = run(session, local, total=epochs, seed=(session.seed + 1) % 2**63, share=(0.0, 0.5))
    with _fixed(own.values()):
        body = run(session, local, share=(0.5, 1.0))
    made = trained(body)
    return replace(made, metrics=made.metrics | {"head_loss": head.loss})


@contextmanager
def _fixed(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    """Within it, these get no gradients."""
    listed = list(parameters)
    for parameter in listed:
        parameter.requires_grad_(False)
        parameter.grad = None
    try:
        yield
    finally:
        for parameter in listed:
            parameter.requires_grad_(True)
