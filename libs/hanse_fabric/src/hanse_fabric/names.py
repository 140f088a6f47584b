"""Names and identifiers. They are parts of bus subjects and object keys, so their alphabet is small."""

from __future__ import annotations

import hashlib
import secrets
from typing import Annotated

from pydantic import StringConstraints

SLUG = r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$"
Slug = Annotated[str, StringConstraints(pattern=SLUG)]
"""A project's or participant's name: lower-case letters, digits and inner hyphens, at most 63 characters."""

HUB_REGION = "hub"
"""The region of sites that connect to the hub itself. Other regions have leaf nodes, and names of their operator's."""

_RUN = r"^[a-z0-9]{12}$"
RunId = Annotated[str, StringConstraints(pattern=_RUN)]
STEP_KEY = r"^[a-z0-9][a-z0-9-]{0,63}$"
StepKey = Annotated[str, StringConstraints(pattern=STEP_KEY)]
"""A workflow step's key, such as `r3-train`: the same at every replay."""

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256 in lower-case hexadecimal (see `hanse_fabric.tensors.digest` for objects above one leaf)."""

IN_WORDS = {
    SLUG: "lower-case letters, digits and hyphens within, 63 characters at most",
    _RUN: "12 lower-case letters and digits",
}
"""What is said of a name that is not of its pattern."""

_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"


def new_run_id() -> str:
    """A fresh run id: 12 characters, 62 bits from a CSPRNG."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(12))


def derive_id(*parts: str) -> str:
    """A 32-character id that is the same for the same parts, on any machine."""
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:32]


def derive_seed(*parts: str | int) -> int:
    """A seed in [0, 2**63) that depends on nothing but the parts: training is repeatable after any crash."""
    digest = hashlib.sha256("\x1f".join(str(part) for part in parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
