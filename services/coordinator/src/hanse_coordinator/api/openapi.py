"""The OpenAPI 3.1 document, made from the table of routes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from hanse_coordinator.api.route import PATH_TYPES, Route
from hanse_coordinator.people.cookies import SAFE, SESSION
from hanse_fabric import __version__
from hanse_schemas.http.errors import ErrorAnswer
from hanse_schemas.http.keys import ApiRole
from hanse_schemas.http.sessions import CSRF_HEADER

_SESSION = f"On loopback, without TLS, it is called {SESSION}."
_REF = "#/components/schemas/{model}"


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """The document for these routes."""
    schemas, definitions = models_json_schema(_models(routes), ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Hanse",
            "version": __version__,
            "description": "The API of a Hanse hub. Times are UTC, durations seconds, digests SHA-256 in hexadecimal.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": definitions.get("$defs", {}),
            "securitySchemes": {
                "api_key": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": f"__Host-{SESSION}", "description": _SESSION},
                "csrf": {"type": "apiKey", "in": "header", "name": CSRF_HEADER},
            },
        },
    }


_Schemas = dict[tuple[type[BaseModel], JsonSchemaMode], dict[str, Any]]


def _models(routes: Sequence[Route]) -> list[tuple[type[BaseModel], JsonSchemaMode]]:
    found: dict[tuple[type[BaseModel], JsonSchemaMode], None] = {(ErrorAnswer, "serialization"): None}
    for route in routes:
        if route.body is not None:
            found[route.body, "validation"] = None
        if route.answer is not None:
            found[route.answer, "serialization"] = None
    return list(found)


def _operation(route: Route, schemas: Any) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "description": _who(route),
        "parameters": [*_path_parameters(route), *_query_parameters(route)],
        "security": _security(route),
        "responses": {
            str(route.status): _answer(route, schemas),
            "default": {
                "description": "Refused: the status is that of the error's code",
                "content": _json(schemas[ErrorAnswer, "serialization"]),
            },
        },
    }
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": _json(schemas[route.body, "validation"])}
    return operation


def _security(route: Route) -> list[dict[str, list[str]]]:
    if not route.roles:
        return []
    session: dict[str, list[str]] = {"session": []} if route.method in SAFE else {"session": [], "csrf": []}
    by_person = route.roles & {ApiRole.OWNER, ApiRole.OPERATOR}
    key: dict[str, list[str]] = {"api_key": []}
    return [each for each, fits in ((key, not route.in_person), (session, by_person)) if fits]


def _who(route: Route) -> str:
    if not route.roles:
        return "Needs no API key."
    roles = ", ".join(sorted(role.value for role in route.roles))
    what = "a session of a person" if route.in_person else "an API key, or a session of a person,"
    return f"Needs {what} of role: {roles}{'; not one of a single project' if route.unscoped else ''}."


def _answer(route: Route, schemas: Any) -> dict[str, Any]:
    if route.status == 303:
        return {"description": "Leads to the page"}
    if route.answer is None:
        return {"description": "Events", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
    return {"description": "Done", "content": _json(schemas[route.answer, "serialization"])}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    names = re.findall(r"{(\w+)}", route.path)
    return [{"name": name, "in": "path", "required": True, "schema": PATH_TYPES[name].json_schema()} for name in names]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    schema = route.query.model_json_schema()
    required = schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": field}
        for name, field in schema.get("properties", {}).items()
    ]
