"""Sections of a job that name a plug-in (`hanse_fabric.plugins`): read by the plug-in's own model of its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, BeforeValidator, ValidationError
from pydantic_core import PydanticCustomError

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.plugins import KINDS, find


def by_name(group: str, base: type[BaseModel], default: str) -> BeforeValidator:
    """Reads a section `{name: ..., settings}` as the subclass of `base` that is registered in `group` under the name.

    Args:
        default: the name, where the section has none.
    """
    return BeforeValidator(_reader(group, base, default))


def _reader(group: str, base: type[BaseModel], default: str) -> Callable[[Any], Any]:
    def read(given: Any) -> Any:
        """The settings.

        Raises:
            ValidationError: naming what does not fit.
            HanseError: CONFLICT, INVALID_INPUT for a plug-in that is there twice, or that is none.
        """
        if isinstance(given, base):
            return given
        if not isinstance(given, Mapping):
            raise PydanticCustomError("section", "a section with a name was expected, such as {{name: {name}}}",
                                      {"name": default})  # fmt: skip
        name = given.get("name", default)
        try:
            plugin = find(group, str(name))
        except HanseError as error:
            if error.code is ErrorCode.CONFLICT:
                raise
            raise _at("name", name, error.message) from None
        kind = plugin.load()
        if not (isinstance(kind, type) and issubclass(kind, base)):
            raise HanseError(
                ErrorCode.INVALID_INPUT, f"{plugin}: {plugin.entry.value} is no subclass of {base.__name__}",
                hint=f"docs/extending.md says what {_an(KINDS[group])} is",
            )  # fmt: skip
        return kind.model_validate({**given, "name": name})

    return read


def _an(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def _at(field: str, given: Any, message: str) -> ValidationError:
    error = PydanticCustomError("plugin", "{message}", {"message": message})
    return ValidationError.from_exception_data("section", [{"type": error, "loc": (field,), "input": given}])
