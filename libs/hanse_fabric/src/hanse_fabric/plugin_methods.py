"""Whether a plug-in has the methods that Hanse will call, and whether they give what they are to give: told in words
when a job is submitted, and not by a traceback in the middle of a run."""

from __future__ import annotations

from inspect import signature

from hanse_fabric.errors import ErrorCode, HanseError, invalid

_HINT = "docs/extending.md says what it must have"


def require_method(plugin: str, owner: object, name: str, *arguments: str) -> None:
    """Check that an object has a method, and that it can be called with these arguments, in this order.

    Args:
        plugin: what the object is, and its name: `strategy winsorized`.

    Raises:
        HanseError: INVALID_INPUT saying what the method is called with.
    """
    method, wanted = getattr(owner, name, None), f"{name}({', '.join(arguments)})"
    kind = type(owner).__name__
    if not callable(method):
        raise HanseError(ErrorCode.INVALID_INPUT, f"{plugin}: {kind} has no {wanted}", hint=_HINT)
    try:
        given = signature(method)
    except ValueError:  # compiled, and says nothing of its arguments
        return
    try:
        given.bind(*arguments)
    except TypeError:
        told = f"{plugin}: {kind}.{name}{given} cannot be called as {wanted}"
        raise HanseError(ErrorCode.INVALID_INPUT, told, hint=_HINT) from None


def require_texts(field: str, given: object) -> None:
    """Raises HanseError INVALID_INPUT unless this is a tuple of texts: of a single text, each letter would be one."""
    if not isinstance(given, tuple) or not all(isinstance(each, str) for each in given):
        raise invalid(field, given, "a tuple of texts, such as ('normalizer',)", hint=_HINT)


def require_count(field: str, given: object) -> None:
    """Raises HanseError INVALID_INPUT unless this is a whole number from 1 on."""
    if not isinstance(given, int) or given < 1:
        raise invalid(field, given, "a whole number from 1 on", hint=_HINT)


def require_nothing(method: str, returned: object, written: str) -> None:
    """Check that a method that is to write in place has returned nothing: what it returned would be lost.

    Args:
        written: what it is to write in place: `out`.

    Raises:
        HanseError: INVALID_INPUT.
    """
    if returned is not None:
        told = f"{method} returned {type(returned).__name__}; it is to write in place, as in {written}[...] = result"
        raise HanseError(ErrorCode.INVALID_INPUT, told, hint=_HINT)
