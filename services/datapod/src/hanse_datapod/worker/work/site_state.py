"""What stays at the site between the rounds of a run, in its state folder: one file a round, of all that is kept.

Local entries of the model are the group `local`; algorithms have their own (control variates, personal models).

A round begins from the file of the site's last round that counted, as the hub tells it. So a round that is repeated
after a crash begins from the same file, and a round whose answer came too late leaves no trace. That file stays until a
later round has counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hanse_fabric import durable
from hanse_fabric.tensors.file import read_tensors, write_tensors
from hanse_fabric.tensors.layout import Entry, Layout, Rule, dtype_name

LOCAL, PRIVATE = "local", "local by dp_sgd"
"""The groups of the model's entries that stay at the site: as training leaves them, and as dp_sgd does."""
LOCALS = (LOCAL, PRIVATE)
KEPT = "kept by code"
"""The group of what code of another framework keeps (Flower's `context.state`)."""

Groups = Mapping[str, Mapping[str, np.ndarray]]


def local_group(config: Mapping[str, Any]) -> str:
    """The group that a task reads and leaves. Where noise hides one example, that is dp_sgd's own: what other training
    has kept without noise changes with any one example, and would change all others' gradients and metrics with it.
    """
    privacy = config.get("privacy") or {}
    return PRIVATE if privacy.get("mechanism") == "dp_sgd" or privacy.get("cut") is not None else LOCAL


@dataclass(frozen=True, slots=True)
class SiteState:
    """What was kept.

    Attributes:
        round: that it is of; 0 for none.
        groups: arrays by group and name, read-only.
        lost: whether there should be something that is not there.
    """

    round: int
    groups: dict[str, dict[str, np.ndarray]]
    lost: bool = False


def read_state(folder: Path, *, before: int, trained: int | None) -> SiteState:
    """What the work of a round begins with.

    Args:
        before: rounds from this one on are not looked at.
        trained: the site's last round that counted, 0 for none; None where the hub does not say: then the newest
            that is there is taken for it.
    """
    there = [number for number in _rounds(folder) if number < before]
    wanted = trained if trained is not None else max(there, default=0)
    if wanted not in there:
        return SiteState(0, {}, lost=wanted > 0)
    groups: dict[str, dict[str, np.ndarray]] = {}
    for name, array in read_tensors(_path(folder, wanted))[1].items():
        group, _, own = name.partition("/")
        groups.setdefault(group, {})[own] = array
    return SiteState(wanted, groups)


def write_state(folder: Path, round_number: int, groups: Groups, begun: SiteState) -> None:
    """Keep what a round leaves; it is on the disk when this returns. Files of other rounds are removed, but the one
    that this round began from stays.
    """
    arrays = {f"{group}/{name}": array for group, named in groups.items() for name, array in named.items()}
    if not arrays:
        return
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    # The rule does not matter, for these entries are never reduced.
    layout = Layout.of(
        Entry(name, dtype_name(array.dtype), tuple(array.shape), Rule.KEEP_NEWEST) for name, array in arrays.items()
    )
    write_tensors(_path(folder, round_number), layout, arrays)
    durable.sync_folder(folder)
    for number in _rounds(folder):
        if number not in (round_number, begun.round):
            _path(folder, number).unlink(missing_ok=True)


def _path(folder: Path, round_number: int) -> Path:
    return folder / f"{LOCAL}-{round_number}.safetensors"


def _rounds(folder: Path) -> list[int]:
    names = (path.name.split("-")[1].split(".")[0] for path in folder.glob(f"{LOCAL}-*.safetensors"))
    return sorted(int(name) for name in names if name.isdigit())
