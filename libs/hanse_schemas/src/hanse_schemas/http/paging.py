"""Pages of lists."""

from __future__ import annotations

from pydantic import Field

from hanse_fabric.messages.base import Frozen


class Page(Frozen):
    """A part of a list, in the list's order; without both fields all of it.

    Attributes:
        after: what the last entry of the page before is called (its name, id or number); it need not be there any more
            where the list is in the order of names.
        limit: entries at most.
    """

    after: str | None = Field(default=None, min_length=1, max_length=200)
    limit: int | None = Field(default=None, ge=1, le=10_000)
