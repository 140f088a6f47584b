"""Bringing the secrets of a deployment to where they belong, so that several who do it at once agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_operations.secrets.wanted import Wishes, names, wanted

_TRIES = 10


@dataclass(frozen=True, slots=True)
class Stored:
    """A secret as it is stored; `repr` does not show what it holds."""

    data: Mapping[str, bytes]
    version: str

    def __repr__(self) -> str:
        return f"Stored({sorted(self.data)}, version {self.version})"


class Target(Protocol):
    """Where secrets are kept, by name."""

    def read(self, name: str) -> Stored | None:
        """The secret, or None where there is none."""
        ...

    def create(self, name: str, data: Mapping[str, bytes]) -> None:
        """Store one that must not exist yet; CONFLICT where it does."""
        ...

    def change(self, name: str, data: Mapping[str, bytes], version: str) -> None:
        """Replace values of one that still has this version; CONFLICT where it has not."""
        ...

    def remove(self, name: str) -> bool:
        """Remove it; returns whether there was one that this command had made: others' stay."""
        ...


def write(target: Target, wishes: Wishes, now: datetime) -> dict[str, str]:
    """Make what is missing and renew what is due.

    Returns:
        What was done, by secret: `kept`, `made`, or `renewed: <keys>`.

    Raises:
        HanseError: CONFLICT when others change the secrets again and again; what the place raises.
    """
    for _ in range(_TRIES):
        stored = {name: target.read(name) for name in names(wishes)}
        try:
            return _write(target, stored, wishes, now)
        except HanseError as error:
            # Another job wrote meanwhile: its values are taken over.
            if error.code is not ErrorCode.CONFLICT:
                raise
            last = error
    raise last


def _write(target: Target, stored: Mapping[str, Stored | None], wishes: Wishes, now: datetime) -> dict[str, str]:
    done: dict[str, str] = {}
    have = {name: one.data for name, one in stored.items() if one is not None}
    for name, data in wanted(have, wishes, now).items():
        before = stored[name]
        if before is None:
            target.create(name, data)
            done[name] = "made"
            continue
        changed = {key: value for key, value in data.items() if before.data.get(key) != value}
        if changed:
            target.change(name, changed, before.version)
        done[name] = f"renewed: {', '.join(sorted(changed))}" if changed else "kept"
    return done


def remove(target: Target, wishes: Wishes) -> dict[str, str]:
    """Remove the secrets of a deployment, those first that are made from others; returns what was done, by secret."""
    listed = reversed(names(wishes))
    return {name: "removed" if target.remove(name) else "is not there, or not of this command" for name in listed}
