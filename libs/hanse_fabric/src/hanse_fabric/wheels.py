"""How a part of Hanse that is not installed comes here: by wheels that `make wheels` made, for no index has them."""

from __future__ import annotations


def to_install(part: str) -> str:
    """The command for a distribution, such as `hanse[torch]`."""
    return f"pip install --find-links WHEELS '{part}' (WHEELS: the folder that `make wheels` made)"
