"""What a check found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: `advice` says what to do where it is not well."""

    check: str
    well: bool
    found: str
    advice: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def finding(check: str, well: bool, found: str, advice: str) -> Finding:
    """A finding that keeps its advice only where it is needed."""
    return Finding(check, well, found, "" if well else advice)
