"""Sections of a job that name a plug-in (`hanse_fabric.plugins`): read by the plug-in's own model of its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, BeforeValidator, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.nearest import nearest_key
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
            raise PydanticCustomError("section", "a section with a name was expected, such as {example}",
                                      {"example": f"{{name: {default}}}"})  # fmt: skip
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
        try:
            return kind.model_validate({**given, "name": name})
        except ValidationError as error:
            if "name" in given and any(item["loc"] == ("name",) for item in error.errors(include_url=False)):
                told = f"{plugin}: {plugin.entry.value} does not take {name!r} for its name"
                hint = f"write name: Literal[{str(name)!r}] = {str(name)!r}, or name the entry point otherwise"
                raise HanseError(ErrorCode.INVALID_INPUT, told, hint=hint) from None
            raise _with_nearest(error, kind) from None
        except Exception as error:  # whatever a foreign validator raises
            if (reason := plugin.blamed(error)) is None:
                raise
            told = f"{reason}: {error}"
            raise HanseError(ErrorCode.INVALID_INPUT, told, hint="mend the package, or uninstall it") from error

    return read


def _with_nearest(error: ValidationError, form: type[BaseModel]) -> ValidationError:
    """The same error, in which an unknown key is told with the nearest of `form`: whoever shows it does not know which
    plug-in's form was meant."""
    lines: list[InitErrorDetails] = []
    for item in error.errors(include_url=False):
        kind, message = item["type"], item["msg"]
        if kind == "extra_forbidden" and (nearest := nearest_key(form, item["loc"])):
            kind, message = "unknown_key", f"{message}, did you mean {nearest}?"
        told = PydanticCustomError(kind, "{message}", {"message": message})
        lines.append({"type": told, "loc": item["loc"], "input": item["input"]})
    return ValidationError.from_exception_data(error.title, lines)


def _an(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def _at(field: str, given: Any, message: str) -> ValidationError:
    error = PydanticCustomError("plugin", "{message}", {"message": message})
    return ValidationError.from_exception_data("section", [{"type": error, "loc": (field,), "input": given}])
