"""A request of the HTTP API as a value, with how its answer is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from hanse_schemas.http.reading import Form, read

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request and how to read its answer (the decoded JSON body)."""

    method: str
    path: str
    parse: Callable[[Any], T]
    body: Mapping[str, Any] | None = None


def one(form: type[Form]) -> Callable[[Any], Form]:
    """Reads an answer that is one of these."""
    return lambda body: read(form, body)


def each(form: type[Form], key: str) -> Callable[[Any], list[Form]]:
    """Reads an answer that has a list of these."""
    return lambda body: [read(form, item) for item in body[key]]


def path_of(project: str, *parts: object) -> str:
    """A path under a project; whatever the names are, they do not lead elsewhere."""
    return "/".join(["/v1/projects", *(quote(str(part), safe="") for part in (project, *parts))])
