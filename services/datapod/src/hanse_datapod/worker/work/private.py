"""What leaves the worker after a round of private training."""

from __future__ import annotations

import numpy as np

from hanse_fabric.tensors.layout import Layout
from hanse_learning.site.site_privacy import SitePrivacy, privatize, require_parameters


def made_private(
    update: dict[str, np.ndarray], metrics: dict[str, float], layout: Layout, private: SitePrivacy
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """(the update, clipped and with noise; the metrics that do not depend on the data)."""
    if private.mechanism == "dp_sgd":
        require_parameters(layout)
        made = update
    else:
        made = privatize(update, layout, private)
    return made, {name: value for name, value in metrics.items() if name == "steps"}
