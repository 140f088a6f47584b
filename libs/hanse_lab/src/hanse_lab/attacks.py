"""What hostile sites do to what they learn from, and to what they send."""

from __future__ import annotations

import numpy as np

from hanse_fabric.errors import invalid
from hanse_fabric.names import derive_seed
from hanse_fabric.tensors.layout import Layout, Rule
from hanse_lab.experiment import AttackConfig
from hanse_learning.site.examples import Examples


def hostile(attack: AttackConfig | None, sites: int, seed: int) -> frozenset[int]:
    """Which sites attack."""
    if attack is None:
        return frozenset()
    chosen = np.random.default_rng(derive_seed(seed, "attack")).permutation(sites)
    return frozenset(chosen[: round(attack.share * sites)].tolist())


def poisoned(data: Examples, attack: AttackConfig, classes: int) -> Examples:
    """What a hostile site trains on.

    Raises:
        HanseError: INVALID_INPUT for labels of no classes.
    """
    if attack.name != "label_flip":
        return data
    if data.y.dtype.kind not in "iu":
        raise invalid("attacks.name", attack.name, "another attack: these data have no classes")
    return Examples(data.x, classes - 1 - data.y)


def sent(update: dict[str, np.ndarray], attack: AttackConfig, layout: Layout) -> dict[str, np.ndarray]:
    """What a hostile site sends; buffers are left as they are."""
    if attack.name == "label_flip":
        return update
    factor = -attack.factor if attack.name == "sign_flip" else attack.factor
    parameters = {entry.name for entry in layout if entry.rule is Rule.PARAMETER}
    return {name: array * array.dtype.type(factor) if name in parameters else array for name, array in update.items()}
