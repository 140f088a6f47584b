"""Which version of a model a caller means: by its number, or by the beginning of its digest, in any length that is
unique among the project's versions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages import ModelVersion

Wanted = Annotated[str, Field(pattern=r"^(?:[1-9][0-9]{0,8}|[0-9a-f]{4,64})$")]
"""A number of up to nine digits, or four or more characters of a digest."""

_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
_SHOWN = 12
_MOST_NAMED = 5


def number(wanted: str) -> int | None:
    """The version's number, where that is what was given; a digest that begins with digits is given to its first
    letter, or with ten digits, for nothing that is a number is ever taken for one."""
    return int(wanted) if _NUMBER.fullmatch(wanted) else None


def version_of(wanted: str, versions: Iterable[ModelVersion], project: str) -> ModelVersion:
    """The version that is meant.

    Args:
        wanted: see `Wanted`.
        versions: all of the project; by their digests, those that were deleted are not found.

    Raises:
        HanseError: NOT_FOUND where there is none; INVALID_INPUT where several begin so, which it names.
    """
    at = number(wanted)
    if at is not None:
        found = [each for each in versions if each.version == at]
    else:
        found = [each for each in versions if each.digest.startswith(wanted) and not each.deleted]
    if not found:
        known = f"no version {wanted}" if at is not None else f"no version whose digest begins with {wanted}"
        raise HanseError(
            ErrorCode.NOT_FOUND, f"version: there is {known} in project {project!r}",
            hint="`hanse model list` shows numbers and digests",
        )  # fmt: skip
    if len(found) > 1:
        named = sorted(found, key=lambda each: each.version)
        shown = ", ".join(f"{each.version} ({_told(each.digest, wanted)})" for each in named[:_MOST_NAMED])
        more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
        raise invalid(
            "version", wanted, f"the beginning of one digest; {len(named)} begin so, of the versions {shown}{more}",
            hint="give more of the digest, or the version's number",
        )  # fmt: skip
    return found[0]


def _told(digest: str, wanted: str) -> str:
    """So much of a digest that it can be told from others that begin alike."""
    return digest[: max(_SHOWN, len(wanted) + 4)]
