"""Models: the registry's records, and what its owner asks of it. The registry alone writes them."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from hanse_coordinator.api.hub import Hub
from hanse_coordinator.api.paging import page_of
from hanse_coordinator.api.route import OWN, READ, Request, Route
from hanse_coordinator.api.submission import object_key
from hanse_coordinator.api.versions import number, version_of
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ModelVersion, ObjectRef, RegistryReply, RegistryRequest, Stage
from hanse_fabric.messages.uploads import UploadState
from hanse_fabric.store.uploads import go_on
from hanse_fabric.subjects import REGISTRY
from hanse_schemas.http.models import Announced, Download, ModelList, ModelsQuery, ModelView, Promote, Rollback

_REGISTRY_TIMEOUT_S = 15.0
_UPLOAD_FOR = timedelta(hours=1)


async def upload_object(hub: Hub, request: Request) -> UploadState:
    """A step of an upload. What is named by its content never changes: one that is there stays as it is."""
    body: Announced = request.body
    await hub.project(request.project)
    announced = ObjectRef(digest=body.digest, size=body.size)
    key = object_key(request.project, body.digest)
    # Of an object that is there, and of an upload that ends, nothing more is stored.
    more = body.step.digests and (body.step.upload or await asyncio.to_thread(hub.store.find, key) is None)
    if more:
        await hub.quotas.take_upload(request.project, body.size, body.step.upload)
    state = await asyncio.to_thread(go_on, hub.store, key, announced, body.step, _UPLOAD_FOR)
    if state.upload:
        hub.quotas.begun(request.project, state.upload, body.size)
    if state.parts and not body.step.upload:
        await hub.audit(request.caller, request.project, "object.upload", f"object:{body.digest}")
    return state


async def list_models(hub: Hub, request: Request) -> ModelList:
    await hub.project(request.project)
    found = [entry.value for entry in await hub.buckets.models.list(project=request.project)]
    query: ModelsQuery = request.query
    living = sorted((one for one in found if not one.deleted), key=lambda one: one.version, reverse=query.newest)
    page = page_of(living, query, lambda version: version.version)
    return ModelList(models=tuple(ModelView.of(version) for version in page))


async def get_model(hub: Hub, request: Request) -> ModelView:
    return ModelView.of(await _named(hub, request))


async def promote_model(hub: Hub, request: Request) -> ModelView:
    body: Promote = request.body
    reply = await _ask(hub, request, "promote", stage=body.stage, reason=body.reason)
    return ModelView.of(_version(reply))


async def rollback_model(hub: Hub, request: Request) -> ModelView:
    body: Rollback = request.body
    return ModelView.of(_version(await _ask(hub, request, "rollback", reason=body.reason)))


async def delete_model(hub: Hub, request: Request) -> ModelView:
    return ModelView.of(_version(await _ask(hub, request, "delete")))


async def download_model(hub: Hub, request: Request) -> Download:
    reply = await _ask(hub, request, "link")
    return Download(url=reply.url, version=ModelView.of(_version(reply)))


async def _ask(
    hub: Hub, request: Request, action: str, *, stage: Stage | None = None, reason: str = ""
) -> RegistryReply:
    """The registry's answer. It audits what it does, in the name of the caller."""
    await hub.project(request.project)
    wanted = request.path.get("version")
    version = None if wanted is None else number(wanted) or (await _named(hub, request)).version
    question = RegistryRequest(
        action=action,
        project=request.project,
        version=version,
        stage=stage,
        actor=request.caller.actor,
        reason=reason,
    )
    return await ask_registry(hub, question)


async def ask_registry(hub: Hub, question: RegistryRequest) -> RegistryReply:
    """The registry's answer.

    Raises:
        HanseError: what it refuses; TIMEOUT and UNAVAILABLE.
    """
    subject = REGISTRY.of(project=question.project)
    reply = RegistryReply.decode(await hub.bus.request(subject, question.encode(), timeout=_REGISTRY_TIMEOUT_S))
    if reply.code:
        raise HanseError(ErrorCode.of(reply.code), reply.message)
    return reply


async def _named(hub: Hub, request: Request) -> ModelVersion:
    """The version that the path names."""
    found = [entry.value for entry in await hub.buckets.models.list(project=request.project)]
    return version_of(str(request.path["version"]), found, request.project)


def _version(reply: RegistryReply) -> ModelVersion:
    if reply.version is None:
        raise HanseError(ErrorCode.INTERNAL, "the model registry answered without a version")
    return reply.version


_BASE = "/v1/projects/{project}/models"
_VERSION = _BASE + "/{version}"
ROUTES = (
    Route("POST", "/v1/projects/{project}/objects", OWN, upload_object, UploadState,
          "Upload an initial model: a presigned PUT for each part", body=Announced),
    Route("GET", _BASE, READ, list_models, ModelList, "A project's model versions", query=ModelsQuery),
    Route("GET", _VERSION, READ, get_model, ModelView, "A model version"),
    Route("POST", _VERSION + "/promote", OWN, promote_model, ModelView, "Move a version to a stage", body=Promote),
    Route("POST", _BASE + "/rollback", OWN, rollback_model, ModelView,
          "Put the production version before the present one back", body=Rollback),
    Route("DELETE", _VERSION, OWN, delete_model, ModelView, "Delete a version that is not in a stage or in use",
          ends=True),
    Route("GET", _VERSION + "/download", READ, download_model, Download, "A presigned link to a version's file"),
)  # fmt: skip
