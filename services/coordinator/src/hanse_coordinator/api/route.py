"""What a route is: method, path, who may use it, what goes in and comes out. aiohttp's routes, the check of the caller
and the OpenAPI document are made from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from aiohttp import web
from pydantic import BaseModel, Field, TypeAdapter

from hanse_coordinator.api.hub import Hub
from hanse_coordinator.api.versions import Wanted
from hanse_coordinator.auth import Caller
from hanse_fabric.messages.base import Frozen
from hanse_fabric.names import RunId, Slug
from hanse_schemas.http.keys import ApiRole
from hanse_schemas.http.sessions import PersonName

Roles = frozenset[ApiRole]
PUBLIC: Roles = frozenset()
"""No key is needed."""

READ: Roles = frozenset({ApiRole.OWNER, ApiRole.SITE, ApiRole.OPERATOR})
OWN: Roles = frozenset({ApiRole.OWNER, ApiRole.OPERATOR})
OPERATE: Roles = frozenset({ApiRole.OPERATOR})

PATH_TYPES: dict[str, TypeAdapter[Any]] = {
    "project": TypeAdapter(Slug),
    "participant": TypeAdapter(Slug),
    "run": TypeAdapter(RunId),
    "invitation": TypeAdapter(RunId),
    "key": TypeAdapter(RunId),
    "output": TypeAdapter(Slug),
    "region": TypeAdapter(Slug),
    "person": TypeAdapter(PersonName),
    "leaf_key": TypeAdapter(Annotated[str, Field(pattern=r"^U[A-Z2-7]{55}$")]),
    "version": TypeAdapter(Wanted),
}


class Nothing(Frozen):
    """No fields."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request that was checked: the caller may use the route, and all values have their types."""

    caller: Caller
    path: dict[str, Any]
    body: Any
    query: Any
    http: web.Request

    @property
    def project(self) -> str:
        return str(self.path["project"])


V = TypeVar("V", bound=BaseModel)


def view(kind: type[V], record: BaseModel, **own: Any) -> V:
    """The view of a record: fields of the same name, and its own."""
    return kind(**{name: getattr(record, name) for name in kind.model_fields if name not in own}, **own)


def answer_json(answer: BaseModel, status: int) -> web.Response:
    """An answer as it is sent."""
    return web.Response(
        body=answer.model_dump_json(by_alias=True).encode(), status=status, content_type="application/json",
        headers={"Cache-Control": "no-store"},
    )  # fmt: skip


Handler = Callable[[Hub, Request], Awaitable[BaseModel | web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Route:
    """A row of the table.

    Attributes:
        roles: keys of these roles may use it, and only for their own project; PUBLIC: anybody.
        answer: model of the JSON answer; None for a stream of events.
        unscoped: only who may see all projects may use it.
        in_person: it is for people in a session, and for no key.
        ends: it ends something that is under way or let in: an owner can still do it who has changed too much.
    """

    method: str
    path: str
    roles: Roles
    handler: Handler
    answer: type[BaseModel] | None
    summary: str
    body: type[BaseModel] | None = None
    query: type[BaseModel] = Nothing
    status: int = 200
    unscoped: bool = False
    in_person: bool = False
    ends: bool = False

    @property
    def name(self) -> str:
        return self.handler.__name__
