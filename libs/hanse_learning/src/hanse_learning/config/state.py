"""The one state policy: which entries of a model are shared, which stay at each site, which no longer change.

FedBN is `{layers: batch_norm, keep: local}`; SiloBN `{layers: statistics, keep: local}`; a site by itself
`{match: "*", keep: local}`; personal heads `{layers: output, keep: local}`; FedTAN-II's second phase
`{layers: statistics, keep: frozen, from_round: 1001}`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from hanse_fabric.messages.base import Frozen

Layers = Literal["batch_norm", "normalization", "statistics", "output", "convolution", "linear"]


class StateRule(Frozen):
    """What becomes of a group of entries. The first rule that fits an entry holds; without one it is global.

    Attributes:
        match: a pattern of entry names (`*.weight`).
        layers: or a kind of layer: `batch_norm` with its weights, `normalization` of any kind, `statistics` (running
            means and variances alone), `output` (the last layer), `convolution`, `linear`.
        keep: `global`: reduced at the server. `local`: stays at the site, is no part of what travels. `frozen`:
            travels, and does not change; batch statistics that are frozen are used in training, too.
        from_round: the rule holds from this round on.
    """

    match: str | None = Field(default=None, min_length=1, max_length=200)
    layers: Layers | None = None
    keep: Literal["global", "local", "frozen"]
    from_round: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _one_group(self) -> StateRule:
        if (self.match is None) == (self.layers is None):
            raise ValueError("give match or layers, one of them")
        if self.keep == "local" and self.from_round > 1:
            raise ValueError("from_round: what is local is so from the first round on, for the others never have it")
        return self
