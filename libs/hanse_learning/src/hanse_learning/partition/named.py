"""Partitions by name, as experiment files write them: `{name: dirichlet, alpha: 0.3}`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from hanse_fabric.errors import invalid
from hanse_learning.partition.classes import exact_classes, majority_classes, rotating_classes
from hanse_learning.partition.dirichlet import dirichlet_labels, dirichlet_sizes
from hanse_learning.partition.dominance import label_skew
from hanse_learning.partition.even import iid
from hanse_learning.partition.shares import Labels, Partition

PARTITIONS: dict[str, Callable[..., Partition]] = {
    "iid": iid,
    "classes": exact_classes,
    "majority": majority_classes,
    "rotating": rotating_classes,
    "dirichlet": dirichlet_labels,
    "sizes": dirichlet_sizes,
    "dominance": label_skew,
}


def partition(config: Mapping[str, Any], labels: Labels, sites: int, *, seed: int) -> Partition:
    """The partition that a configuration names.

    Args:
        config: `name`, and the arguments of that partition.

    Raises:
        HanseError: INVALID_INPUT for an unknown name, or an argument that the partition does not have or lacks.
    """
    arguments = {key: value for key, value in config.items() if key != "name"}
    make = PARTITIONS.get(str(config.get("name")))
    if make is None:
        raise invalid("partition.name", config.get("name"), "one of " + ", ".join(sorted(PARTITIONS)))
    known = {
        name: parameter
        for name, parameter in inspect.signature(make).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and name != "seed"
    }
    if extra := sorted(set(arguments) - set(known)):
        raise invalid(
            f"partition.{extra[0]}", arguments[extra[0]], "an argument of it: " + (", ".join(known) or "none")
        )
    needed = [name for name, parameter in known.items() if parameter.default is inspect.Parameter.empty]
    if missing := [name for name in needed if name not in arguments]:
        raise invalid(f"partition.{missing[0]}", None, f"a value, which {config['name']} needs")
    return make(labels, sites, seed=seed, **arguments)
