"""A torch module's arrays as typed entries of a tensor file: parameters, and buffers with a rule each.

Batch norm's `running_mean` is averaged, `running_var` pooled with it, `num_batches_tracked` keeps the newest. Other
floating buffers are averaged, other integer buffers keep the newest. `model.buffers` says otherwise by pattern, and
`keep_local` buffers are in no layout: they stay in the site's state folder, as do all entries that the rules of
`model.state` call local. Frozen ones travel, and come back as they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
from torch import nn

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.tensors.layout import Entry, Layout, Rule, dtype_name
from hanse_learning.config import StateRule
from hanse_learning.site.modes import BATCH_NORMS, freeze_statistics
from hanse_learning.site.state_policy import groups_of, kept_by, require_trainable

Arrays = Mapping[str, np.ndarray]
KEEP_LOCAL = "keep_local"


@dataclass(frozen=True, slots=True)
class Entries:
    """The layout of what travels, that of what stays at the site, and the names of what does not change."""

    travelling: Layout
    local: Layout
    frozen: frozenset[str] = frozenset()


def entries_of(
    module: nn.Module,
    buffers: Mapping[str, str] | None = None,
    state: Sequence[StateRule] = (),
    round_number: int = 1,
) -> Entries:
    """The module's entries in a round.

    Args:
        buffers: patterns of names to rules, the first that fits decides.
        state: which entries are local or frozen.

    Raises:
        HanseError: INVALID_INPUT for a pattern or rule that fits nothing, a rule that does not fit the dtype, or rules
            that would leave no parameter to train in a later round.
    """
    patterns = dict(buffers or {})
    parameters = dict(module.named_parameters())
    named = module.state_dict()
    names = [name for name in named if name not in parameters]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise invalid("model.buffers", pattern, "a pattern of one of the buffers " + (", ".join(names) or "(none)"))
    groups = groups_of(module)
    kept = kept_by(groups, state, round_number)
    require_trainable(groups, parameters.keys(), state, round_number)
    rules = {
        name: next((rule for pattern, rule in patterns.items() if fnmatchcase(name, pattern)), None) for name in names
    }
    stays = {name for name in named if kept[name] == "local" or rules.get(name) == KEEP_LOCAL}
    travelling, local = [], []
    for name, tensor in named.items():
        array = tensor.detach().numpy()
        dtype, shape = dtype_name(array.dtype), tuple(array.shape)
        if name in stays:
            local.append(Entry(name, dtype, shape, Rule.KEEP_NEWEST))  # never reduced: any rule serves
        elif name in parameters:
            travelling.append(Entry(name, dtype, shape))
        else:
            rule = rules[name]
            chosen = Rule(rule) if rule else _default(name, array.dtype, named.keys() - stays)
            mean = _mean_of(name) if chosen is Rule.POOL_VARIANCE else None
            travelling.append(Entry(name, dtype, shape, chosen, mean))
    frozen = frozenset(name for name in named if kept[name] == "frozen")
    return Entries(Layout.of(travelling), Layout.of(local), frozen)


def entries_of_arrays(layout: Layout, state: Sequence[StateRule], round_number: int = 1) -> Entries:
    """The entries of a model that is arrays by name, in a round.

    Args:
        layout: of all of them, those that stay at the site among them.
        state: which entries are local or frozen, by patterns of names.

    Raises:
        HanseError: INVALID_INPUT for a rule that fits nothing, or rules that leave no parameter to train.
    """
    groups: dict[str, frozenset[str]] = {entry.name: frozenset() for entry in layout}
    parameters = {entry.name for entry in layout if entry.rule is Rule.PARAMETER}
    kept = kept_by(groups, state, round_number)
    frozen = frozenset(name for name in kept if kept[name] == "frozen")
    _require_moving(parameters, frozen)
    require_trainable(groups, parameters, state, round_number)
    travelling = Layout.of(entry for entry in layout if kept[entry.name] != "local")
    return Entries(travelling, Layout.of(entry for entry in layout if kept[entry.name] == "local"), frozen)


def freeze(module: nn.Module, entries: Entries) -> None:
    """Have the module's training leave frozen entries alone, and change all others, whatever was set before.

    Raises:
        HanseError: INVALID_INPUT where no parameter is left to train.
    """
    parameters = dict(module.named_parameters())
    for name, parameter in parameters.items():
        parameter.requires_grad_(name not in entries.frozen)
    for name, part in module.named_modules():
        if isinstance(part, BATCH_NORMS):
            freeze_statistics(part, frozen=f"{name}.running_mean" in entries.frozen)
    _require_moving(parameters.keys(), entries.frozen)


def arrays_of(module: nn.Module) -> dict[str, np.ndarray]:
    """Copies of all arrays by name."""
    return {name: view.copy() for name, view in views_of(module).items()}


def views_of(module: nn.Module) -> dict[str, np.ndarray]:
    """All arrays by name: the module's own memory, which changes with them (copies, where it is on a GPU)."""
    return {name: tensor.detach().cpu().numpy() for name, tensor in module.state_dict().items()}


def load(module: nn.Module, arrays: Arrays, layout: Layout, *, what: str = "model file") -> None:
    """Copy the layout's arrays into the module; `what` they are, for the message.

    Raises:
        HanseError: INVALID_INPUT where `arrays` differ in names, shapes or dtypes from the layout.
    """
    require_entries(arrays, layout, what=what)
    named = module.state_dict()
    for entry in layout:
        np.copyto(named[entry.name].detach().numpy(), arrays[entry.name])  # the tensor's own memory


def require_entries(arrays: Arrays, layout: Layout, *, what: str = "model file") -> None:
    """Check that `arrays` are those of the layout; `what` they are, for the message.

    Raises:
        HanseError: INVALID_INPUT where they differ in names, shapes or dtypes.
    """
    for entry in layout:
        array = arrays.get(entry.name)
        if array is None:
            raise _differs(what, f"entry {entry.name} is missing")
        if tuple(array.shape) != entry.shape or array.dtype != entry.numpy:
            has = f"{array.dtype}{list(array.shape)}"
            raise _differs(what, f"entry {entry.name} is {has}, {entry.dtype}{list(entry.shape)} was expected")
    unknown = sorted(arrays.keys() - {entry.name for entry in layout})
    if unknown:
        raise _differs(what, f"entry {unknown[0]} is not in it")


def update_of(received: Arrays, trained: Arrays, layout: Layout, *, consume: bool = False) -> dict[str, np.ndarray]:
    """What is sent: trained minus received for parameters, values for buffers.

    Args:
        consume: write the differences over `trained`, which is not needed any more: fresh memory is slow.
    """
    return {
        entry.name: np.subtract(trained[entry.name], received[entry.name], out=trained[entry.name] if consume else None)
        if entry.rule is Rule.PARAMETER
        else np.asarray(trained[entry.name])
        for entry in layout
    }


def _require_moving(parameters: Set[str], frozen: Set[str]) -> None:
    if parameters and frozen >= parameters:
        raise invalid("model.state", "frozen", "rules that leave a parameter to train")


def _default(name: str, dtype: np.dtype, travelling: Set[str]) -> Rule:
    if dtype.kind != "f":
        return Rule.KEEP_NEWEST
    if name.endswith("running_var") and _mean_of(name) in travelling:
        return Rule.POOL_VARIANCE
    return Rule.AVERAGE


def _mean_of(name: str) -> str:
    return name.removesuffix("running_var") + "running_mean"


def _differs(what: str, how: str) -> HanseError:
    return HanseError(
        ErrorCode.INVALID_INPUT,
        f"{what}: {how}, so it is not the model that the job describes",
        hint="compare the job's model section and the project's schema with those that the file was made for",
    )
