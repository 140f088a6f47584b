"""Which entries of a module are global, local or frozen, by the rules of `model.state`."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Literal

from torch import nn

from hanse_fabric.errors import invalid
from hanse_learning.config import StateRule
from hanse_learning.site.modes import BATCH_NORMS

Kept = Literal["global", "local", "frozen"]

_NORMALIZATIONS = (*BATCH_NORMS, nn.GroupNorm, nn.LayerNorm, nn.modules.instancenorm._InstanceNorm)
_STATISTICS = frozenset({"running_mean", "running_var", "num_batches_tracked"})
OUTPUT = "output"
"""Name of the last layer of every built-in architecture."""


def kept_by(module: nn.Module, rules: Sequence[StateRule], round_number: int) -> dict[str, Kept]:
    """What becomes of each entry in a round; the first rule that fits and holds decides.

    Raises:
        HanseError: INVALID_INPUT for a rule that fits no entry, in whichever round.
    """
    groups = {name: _layers_of(module, name) for name in module.state_dict()}
    for number, rule in enumerate(rules):
        if not any(_fits(rule, name, layers) for name, layers in groups.items()):
            raise invalid(
                f"model.state[{number}]", rule.match or rule.layers, "a group that the model has entries of",
                hint="entries are named " + ", ".join(list(groups)[:12]),
            )  # fmt: skip
    held = [rule for rule in rules if rule.from_round <= round_number]
    return {
        name: next((rule.keep for rule in held if _fits(rule, name, layers)), "global")
        for name, layers in groups.items()
    }


def _fits(rule: StateRule, name: str, layers: frozenset[str]) -> bool:
    return fnmatchcase(name, rule.match) if rule.match is not None else rule.layers in layers


def _layers_of(module: nn.Module, name: str) -> frozenset[str]:
    """The kinds of layers that an entry belongs to."""
    owner, _, last = name.rpartition(".")
    part = module.get_submodule(owner)
    kinds = {
        "batch_norm": isinstance(part, BATCH_NORMS),
        "normalization": isinstance(part, _NORMALIZATIONS),
        "statistics": isinstance(part, _NORMALIZATIONS) and last in _STATISTICS,
        "output": owner == OUTPUT or owner.startswith(f"{OUTPUT}."),
        "convolution": isinstance(part, nn.modules.conv._ConvNd),
        "linear": isinstance(part, nn.Linear),
    }
    return frozenset(kind for kind, belongs in kinds.items() if belongs)
