"""Every request of the HTTP API as a value, so that the synchronous and the asynchronous client share them all."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from hanse.views import InvitationView, ModelView, OutputView, ParticipantView, ProjectView, RunView
from hanse_fabric.messages import ModelVersion

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request and how to read its answer (the decoded JSON body)."""

    method: str
    path: str
    parse: Callable[[Any], T]
    body: Mapping[str, Any] | None = None


def _list(view: Callable[[Any], T], key: str) -> Callable[[Any], list[T]]:
    return lambda body: [view(item) for item in body[key]]


def _project(body: Any) -> ProjectView:
    return ProjectView.model_validate({**body, "data_schema": body.get("schema", {})})


@dataclass(frozen=True, slots=True)
class Download:
    """A presigned link to a model file, and the registry's signed record of it."""

    url: str
    version: ModelVersion


def _download(body: Any) -> Download:
    return Download(str(body["url"]), ModelVersion.decode(json.dumps(body["version"]).encode()))


def _of(project: str, *parts: object) -> str:
    """A path under a project; whatever the names are, they do not lead elsewhere."""
    return "/".join(["/v1/projects", *(quote(str(part), safe="") for part in (project, *parts))])


def hub() -> Call[dict[str, Any]]:
    return Call("GET", "/v1/hub", dict)


def create_project(name: str, schema: Mapping[str, Any], description: str) -> Call[ProjectView]:
    body = {"name": name, "schema": dict(schema), "description": description}
    return Call("POST", "/v1/projects", _project, body)


def project(name: str) -> Call[ProjectView]:
    return Call("GET", _of(name), _project)


def projects() -> Call[list[ProjectView]]:
    return Call("GET", "/v1/projects", _list(_project, "projects"))


def invite(project: str, participant: str, expires_in: float | None) -> Call[InvitationView]:
    body: dict[str, Any] = {"participant": participant}
    if expires_in is not None:
        body["expires_in"] = expires_in
    return Call("POST", _of(project, "invitations"), InvitationView.model_validate, body)


def participants(project: str) -> Call[list[ParticipantView]]:
    return Call("GET", _of(project, "participants"), _list(ParticipantView.model_validate, "participants"))


def revoke(project: str, participant: str) -> Call[ParticipantView]:
    return Call("POST", _of(project, "participants", participant, "revoke"), ParticipantView.model_validate)


def submit(project: str, job: Mapping[str, Any]) -> Call[RunView]:
    return Call("POST", _of(project, "runs"), RunView.model_validate, {"job": dict(job)})


def check(project: str, job: Mapping[str, Any]) -> Call[dict[str, Any]]:
    return Call("POST", _of(project, "check"), dict, {"job": dict(job)})


def runs(project: str) -> Call[list[RunView]]:
    return Call("GET", _of(project, "runs"), _list(RunView.model_validate, "runs"))


def run(project: str, run_id: str) -> Call[RunView]:
    return Call("GET", _of(project, "runs", run_id), RunView.model_validate)


def steer(project: str, run_id: str, action: str) -> Call[RunView]:
    return Call("POST", _of(project, "runs", run_id, action), RunView.model_validate)


def metrics(project: str, run_id: str) -> Call[list[dict[str, Any]]]:
    return Call("GET", _of(project, "runs", run_id, "metrics"), lambda body: list(body["rounds"]))


def outputs(project: str, run_id: str) -> Call[list[OutputView]]:
    return Call("GET", _of(project, "runs", run_id, "outputs"), _list(OutputView.model_validate, "outputs"))


@dataclass(frozen=True, slots=True)
class OutputLink:
    """A presigned link to an output, and what it must be."""

    url: str
    output: OutputView


def output(project: str, run_id: str, name: str) -> Call[OutputLink]:
    return Call(
        "GET", _of(project, "runs", run_id, "outputs", name),
        lambda body: OutputLink(str(body["url"]), OutputView.model_validate(body["output"])),
    )  # fmt: skip


def models(project: str) -> Call[list[ModelView]]:
    return Call("GET", _of(project, "models"), _list(ModelView.model_validate, "models"))


def model(project: str, version: int) -> Call[ModelView]:
    return Call("GET", _of(project, "models", version), ModelView.model_validate)


def promote(project: str, version: int, stage: str, reason: str) -> Call[ModelView]:
    body = {"stage": stage, "reason": reason}
    return Call("POST", _of(project, "models", version, "promote"), ModelView.model_validate, body)


def rollback(project: str, reason: str) -> Call[ModelView]:
    return Call("POST", _of(project, "models", "rollback"), ModelView.model_validate, {"reason": reason})


def download(project: str, version: int) -> Call[Download]:
    return Call("GET", _of(project, "models", version, "download"), _download)


def audit(project: str) -> Call[list[dict[str, Any]]]:
    return Call("GET", _of(project, "audit"), lambda body: list(body["events"]))


def status() -> Call[dict[str, Any]]:
    return Call("GET", "/v1/status", dict)
