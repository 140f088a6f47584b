"""One ledger for each data set: a datapod that serves several projects with the same data charges one budget for them,
and holds their masked answers against one memory. With one for each, every person's budget could be spent once more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
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
        if _project(one) != _project(other) and _files(data_of(one)) == _files(data_of(other)):
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


def _files(data: DataSettings) -> tuple[Path | None, Path | None]:
    """Where the people are: the training data and the test data. Code that loads data loads the same for all homes."""
    files = (data.train, data.test)
    return files[0] and files[0].resolve(), files[1] and files[1].resolve()
