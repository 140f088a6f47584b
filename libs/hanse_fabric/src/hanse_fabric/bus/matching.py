"""How subjects match patterns, as NATS does it: `*` is one token, `>` is one or more at the end."""

from __future__ import annotations

from functools import cache, lru_cache

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.subjects import SUBJECTS, Stream


@lru_cache(maxsize=1 << 14)
def matches(pattern: str, subject: str) -> bool:
    """Whether a concrete subject, or a narrower pattern, lies within `pattern`.

    Kept: of a bus in memory each message's subject is held against the patterns of all who listen.
    """
    if pattern == subject:
        return True
    wanted, given = _tokens(pattern), _tokens(subject)
    for place, part in enumerate(wanted):
        if part == ">":
            return len(given) > place
        if place >= len(given) or given[place] == ">":
            return False
        if part not in ("*", given[place]):
            return False
    return len(wanted) == len(given)


@lru_cache(maxsize=4096)
def _tokens(subject: str) -> tuple[str, ...]:
    return tuple(subject.split("."))


def owner(subject: str) -> Stream:
    """The stream of the table of subjects that stores a concrete subject.

    Raises:
        HanseError: INVALID_INPUT where no stream does.
    """
    for pattern, stream in _stored():
        if matches(pattern, subject):
            return stream
    raise HanseError(ErrorCode.INVALID_INPUT, f"subject: {subject!r} is not one that a stream of Hanse stores")


@cache
def _stored() -> tuple[tuple[str, Stream], ...]:
    """Patterns of what streams store, worked out once: each message of a bus in memory is looked up here."""
    return tuple((row.wildcard(), row.stream) for row in SUBJECTS if row.stream is not None)
