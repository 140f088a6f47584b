"""FedDyn (Acar et al., 2021): the site's loss, minus what its last gradient says, plus a pull to the received model.

    minimized:  L_i(w) - <g_i, w> + alpha / 2 |w - received|^2;      kept:  g_i <- g_i - alpha (w - received)

The server's optimizer `feddyn` does its part with the same alpha.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from hanse_fabric.errors import invalid
from hanse_learning.config import FedDynConfig
from hanse_learning.site.algorithms.common import loss_of, run, trained
from hanse_learning.site.algorithms.fedprox import Proximal
from hanse_learning.site.session import Session, Trained, arrays, copies, require_kept

GRADIENT = "gradient"


class _Dynamic(Proximal):
    """The pull, and minus the last gradient."""

    last: list[tuple[torch.nn.Parameter, torch.Tensor]]

    @torch.no_grad()
    def adjust(self) -> None:
        """See `LocalSteps`."""
        super().adjust()
        for parameter, last in self.last:
            if parameter.grad is not None:
                parameter.grad.sub_(last)


def train(session: Session) -> Trained:
    """See `registry.train_round`.

    Raises:
        HanseError: CONFLICT where the last gradient was lost: the server's state holds its part.
    """
    algorithm = session.config.algorithm
    if not isinstance(algorithm, FedDynConfig):
        raise invalid("train.algorithm.name", algorithm.name, "feddyn")
    require_kept(session, "gradient")
    shared = session.shared()
    received = copies(shared)
    last = session.kept_as(GRADIENT, shared) or {name: torch.zeros_like(each) for name, each in shared.items()}
    local = _Dynamic(session.module, loss_of(session), shared, received, algorithm.alpha)
    local.last = [(parameter, last[name]) for name, parameter in shared.items()]
    made = run(session, local, resumes=True)
    kept = {
        name: torch.sub(last[name], parameter.detach() - received[name], alpha=algorithm.alpha)
        for name, parameter in shared.items()
    }
    return replace(trained(made), keep={GRADIENT: arrays(kept)})
