"""A round's training as a site's privacy wants it: within training (dp_sgd), or on the update that comes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from torch import Tensor

from hanse_fabric.tensors.layout import Layout
from hanse_learning.site.algorithms import scaffold, train_round
from hanse_learning.site.session import Session, Trained
from hanse_learning.site.site_privacy import DpSgd, SitePrivacy, privatize, require_parameters
from hanse_privacy.noise.source import NoiseSource


def train_with(private: SitePrivacy | None, session: Session, *, source: NoiseSource | None = None) -> Trained:
    """Train the session's module in place; with `dp_sgd` privately, else as `train_round`.

    Args:
        private: None: there is no section `privacy`.
        source: for tests and the lab; else of fresh randomness.

    Raises:
        HanseError: as `train_round` and `train_privately`.
    """
    if private is None:
        return train_round(session)
    if private.mechanism == "dp_sgd":
        return _within(private.dp_sgd(), session, source)
    return train_round(replace(session, wanted=frozenset(), on_progress=_quiet(session.on_progress)))


def _within(terms: DpSgd, session: Session, source: NoiseSource | None) -> Trained:
    from hanse_learning.site.dp_sgd import train_privately  # it loads torch.func, which nothing else needs

    def steps(added: Mapping[str, Tensor] | None = None) -> dict[str, float]:
        return train_privately(
            session.module, session.data, session.config, session.problem, terms, session.on_progress,
            round_number=session.round, source=source, ranks=session.ranks, memory=session.memory, added=added,
        )  # fmt: skip

    if session.config.algorithm.name == "scaffold":
        return scaffold.train_privately(session, terms.steps, steps)
    return Trained(metrics=steps(), info={})


def made_private(
    update: dict[str, np.ndarray], layout: Layout, private: SitePrivacy, *, source: NoiseSource | None = None
) -> dict[str, np.ndarray]:
    """The update, clipped and with noise; that of dp_sgd has its noise already.

    Raises:
        HanseError: as `privatize`; INVALID_INPUT where something but parameters would travel.
    """
    if private.mechanism == "dp_sgd":
        require_parameters(layout)
        return update
    return privatize(update, layout, private, source=source)


def _quiet(told: Callable[[float, str], None]) -> Callable[[float, str], None]:
    """Progress without the loss: no noise covers the loss, and no budget was charged for it."""
    return lambda fraction, _text: told(fraction, "training privately")
