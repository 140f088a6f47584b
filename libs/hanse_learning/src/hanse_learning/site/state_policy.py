"""Which entries of a module are global, local or frozen, by the rules of `model.state`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from torch import nn

from hanse_fabric.errors import invalid
from hanse_learning.config import StateRule
from hanse_learning.config.state import Kept, keep_of
from hanse_learning.site.modes import BATCH_NORMS

Groups = Mapping[str, frozenset[str]]

_NORMALIZATIONS = (*BATCH_NORMS, nn.GroupNorm, nn.LayerNorm, nn.modules.instancenorm._InstanceNorm)
_STATISTICS = frozenset({"running_mean", "running_var", "num_batches_tracked"})
OUTPUT = "output"
"""Name of the last layer of every built-in architecture."""


def kept_by(groups: Groups, rules: Sequence[StateRule], round_number: int) -> dict[str, Kept]:
    """What becomes of each entry in a round; the first rule that fits and holds decides.

    Args:
        groups: the kinds of layers that each entry belongs to, by its name.

    Raises:
        HanseError: INVALID_INPUT for a rule that fits no entry, in whichever round.
    """
    for number, rule in enumerate(rules):
        if not any(rule.fits(name, layers) for name, layers in groups.items()):
            raise invalid(
                f"model.state[{number}]", rule.match or rule.layers, "a group that the model has entries of",
                hint="entries are named " + ", ".join(list(groups)[:12]),
            )  # fmt: skip
    return {name: keep_of(rules, name, layers, round_number=round_number) for name, layers in groups.items()}


def require_trainable(groups: Groups, parameters: Set[str], rules: Sequence[StateRule], round_number: int) -> None:
    """Check that the rules leave a parameter to train in every later round.

    Raises:
        HanseError: INVALID_INPUT naming the round.
    """
    for later in {rule.from_round for rule in rules if rule.keep == "frozen" and rule.from_round > round_number}:
        then = kept_by(groups, rules, later)
        if parameters and all(then[name] == "frozen" for name in parameters):
            raise invalid("model.state", f"all frozen from round {later} on", "rules that leave a parameter to train")


def groups_of(module: nn.Module) -> Groups:
    """The kinds of layers that each entry of a module belongs to, by its name."""
    return {name: _layers_of(module, name) for name in module.state_dict()}


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
