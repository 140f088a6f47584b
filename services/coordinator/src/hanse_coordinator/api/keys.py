"""API keys, for the operator: made, listed (never their secrets), revoked."""

from __future__ import annotations

from datetime import timedelta

from hanse_coordinator.api.hub import HUB_AUDIT, Hub
from hanse_coordinator.api.paging import page_of
from hanse_coordinator.api.route import OPERATE, Request, Route, view
from hanse_coordinator.records import ApiKeyRecord
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.identity.secrets import make_api_key
from hanse_schemas.http.keys import ApiRole, CreateKey, IssuedKey, KeyList, KeyView
from hanse_schemas.http.paging import Page


async def create_key(hub: Hub, request: Request) -> IssuedKey:
    body: CreateKey = request.body
    if body.role == "operator" and body.project is not None:
        raise invalid("project", body.project, "possible for an operator's key, which is for the whole hub")
    if body.project is not None:
        await hub.project(body.project)
    key = make_api_key()
    record = ApiKeyRecord(
        id=key.id,
        hash=key.hash,
        role=ApiRole(body.role),
        project=body.project,
        name=body.name,
        created_at=hub.clock.now(),
        created_by=request.caller.actor,
        expires_at=None if body.expires_in is None else hub.clock.now() + timedelta(seconds=body.expires_in),
        read_only=body.read_only or None,
    )
    entry = await hub.buckets.keys.create(record, key=key.id)
    hub.keys.note(record, entry.revision)
    where = body.project or HUB_AUDIT
    await hub.audit(request.caller, where, "key.create", f"key:{key.id}", role=body.role, name=body.name)
    return view(IssuedKey, record, key=key.text, read_only=body.read_only, void=False)


async def list_keys(hub: Hub, request: Request) -> KeyList:
    found = sorted((entry.value for entry in await hub.buckets.keys.list()), key=lambda record: record.created_at)
    page = page_of(found, request.query, lambda record: record.id)
    return KeyList(keys=tuple([await _view(hub, record) for record in page]))


async def revoke_key(hub: Hub, request: Request) -> KeyView:
    key = str(request.path["key"])
    if key == request.caller.key:
        raise HanseError(
            ErrorCode.CONFLICT, f"key: {key} is the key that asks", hint="make another operator's key and use that"
        )
    entry = await hub.buckets.keys.change(lambda old: old.model_copy(update={"revoked": True}), key=key)
    hub.keys.note(entry.value, entry.revision)
    await hub.audit(request.caller, entry.value.project or HUB_AUDIT, "key.revoke", f"key:{key}")
    return await _view(hub, entry.value)


async def _view(hub: Hub, record: ApiKeyRecord) -> KeyView:
    return view(KeyView, record, read_only=bool(record.read_only), void=bool(await hub.keys.void_by(record)))


ROUTES = (
    Route("POST", "/v1/keys", OPERATE, create_key, IssuedKey, "Make an API key", body=CreateKey, status=201,
          unscoped=True),
    Route("GET", "/v1/keys", OPERATE, list_keys, KeyList, "All API keys, without their secrets", query=Page,
          unscoped=True),
    Route("DELETE", "/v1/keys/{key}", OPERATE, revoke_key, KeyView, "Revoke an API key", unscoped=True),
)  # fmt: skip
