"""Parts of lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_schemas.http.paging import Page

T = TypeVar("T")


def page_of(items: Sequence[T], page: Page, name: Callable[[T], object], *, by_name: bool = False) -> Sequence[T]:
    """The part of a list that is wanted. Pure.

    Args:
        by_name: whether the list is in the order of its names, so that a page goes on where its last entry was removed.

    Raises:
        HanseError: NOT_FOUND where `after` names nothing.
    """
    if page.after is not None:
        names = [str(name(item)) for item in items]
        if by_name:
            items = [item for item, each in zip(items, names, strict=True) if each > page.after]
        elif page.after in names:
            items = items[names.index(page.after) + 1 :]
        else:
            raise HanseError(
                ErrorCode.NOT_FOUND, f"after: there is no {page.after!r} in the list", hint="begin with the first page"
            )
    return items[: page.limit]
