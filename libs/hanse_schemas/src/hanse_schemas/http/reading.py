"""How a body is read or written by one who is not the hub."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.explained import explain

Form = TypeVar("Form", bound=BaseModel)


def read(form: type[Form], body: object) -> Form:
    """An answer of the hub. Fields that this release does not know are passed over: a hub may be newer than its reader.

    Raises:
        ValidationError: a field is missing, or has a value that this release does not know.
    """
    return form.model_validate(body, extra="ignore")


def write(form: type[BaseModel], **fields: object) -> dict[str, Any]:
    """A request's body, checked as the hub will check it; with the fields that are given alone.

    Raises:
        HanseError: INVALID_INPUT naming each field, its value and what was expected.
    """
    try:
        return form.model_validate(fields).model_dump(mode="json", by_alias=True, exclude_unset=True)
    except ValidationError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, explain(error, form)) from None
