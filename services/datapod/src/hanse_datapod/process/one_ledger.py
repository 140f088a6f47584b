"""One ledger for each data set: a datapod that serves several projects with the same data charges one budget for them,
and holds their masked answers against one memory. With one for each, every person's budget could be spent once more.

Data are the same where their content is: by whichever path, link or copy. Where each project has a datapod of its own,
nobody sees that.
"""

from __future__ import annotations

import filecmp
from collections.abc import Callable, Sequence
from itertools import combinations, product
from pathlib import Path

from hanse_datapod.data.settings import DataSettings
from hanse_datapod.policy.site_policy import Policy
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_site import load_identity


def require_one_ledger(homes: Sequence[Path], data_of: Callable[[Path], DataSettings], policy: Policy) -> None:
    """Check that homes of several projects which have the same data share ledger and memory. Blocks.

    Raises:
        HanseError: POLICY naming two such homes, and what the policy lacks.
    """
    lacking = [
        f"{section}: {{{key}: {folder}}}"
        for section, key, value, folder in (
            ("privacy", "ledger", policy.privacy.ledger, "/var/lib/hanse/ledger"),
            ("masking", "memory", policy.masking.memory, "/var/lib/hanse/memory"),
        )
        if value is None
    ]
    if not lacking:
        return
    for one, other in combinations(homes, 2):
        if _project(one) != _project(other) and _share_people(data_of(one), data_of(other)):
            raise HanseError(
                ErrorCode.POLICY,
                f"{one} and {other}: two projects with the same data, and a privacy ledger or memory of masked answers "
                "for each: what one has spent the other would not know",
                hint=f"name one folder for both in the policy, {', '.join(lacking)}",
            )


def _project(home: Path) -> str:
    """Of one that has not joined, a name that no project has."""
    identity = load_identity(home)
    return str(home) if identity is None else identity.project


def _share_people(one: DataSettings, other: DataSettings) -> bool:
    """Whether the training or test data of one are among the other's. Code that loads data loads the same for all."""
    ours, theirs = ([path for path in (data.train, data.test) if path is not None] for data in (one, other))
    return (not ours and not theirs) or any(_same(*pair) for pair in product(ours, theirs))


def _same(one: Path, other: Path) -> bool:
    if one.resolve() == other.resolve():
        return True
    ours, theirs = _content(one), _content(other)
    sizes = [sorted((name, path.stat().st_size) for name, path in found.items()) for found in (ours, theirs)]
    if not ours or sizes[0] != sizes[1]:
        return False
    return all(path.samefile(theirs[name]) or filecmp.cmp(path, theirs[name], shallow=False)
               for name, path in ours.items())  # fmt: skip


def _content(data: Path) -> dict[str, Path]:
    """The files of a file, a folder, or a prefix of genotypes, by what their names have beside that of the data."""
    if data.is_file():
        return {"": data}
    if data.is_dir():
        return {str(path.relative_to(data)): path for path in sorted(data.rglob("*")) if path.is_file()}
    beside = data.parent.glob("*") if data.parent.is_dir() else ()
    return {path.name.removeprefix(data.name): path for path in beside if path.name.startswith(f"{data.name}.")}
