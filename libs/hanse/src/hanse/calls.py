"""Every request of the HTTP API as a value, and how to read its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from hanse.views import RunView
from hanse_schemas.http.invitations import Invite, IssuedInvitation
from hanse_schemas.http.models import Download, ModelView, Promote, Rollback
from hanse_schemas.http.outputs import OutputLink, OutputView
from hanse_schemas.http.participants import ParticipantView
from hanse_schemas.http.projects import CreateProject, ProjectView
from hanse_schemas.http.reading import Form, read, write

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request and how to read its answer (the decoded JSON body)."""

    method: str
    path: str
    parse: Callable[[Any], T]
    body: Mapping[str, Any] | None = None


def _a(form: type[Form]) -> Callable[[Any], Form]:
    return lambda body: read(form, body)


def _list(form: type[Form], key: str) -> Callable[[Any], list[Form]]:
    return lambda body: [read(form, item) for item in body[key]]


def _of(project: str, *parts: object) -> str:
    """A path under a project; whatever the names are, they do not lead elsewhere."""
    return "/".join(["/v1/projects", *(quote(str(part), safe="") for part in (project, *parts))])


def hub() -> Call[dict[str, Any]]:
    return Call("GET", "/v1/hub", dict)


def create_project(name: str, schema: Mapping[str, Any], description: str) -> Call[ProjectView]:
    body = write(CreateProject, name=name, schema=dict(schema), description=description)
    return Call("POST", "/v1/projects", _a(ProjectView), body)


def project(name: str) -> Call[ProjectView]:
    return Call("GET", _of(name), _a(ProjectView))


def projects() -> Call[list[ProjectView]]:
    return Call("GET", "/v1/projects", _list(ProjectView, "projects"))


def invite(project: str, participant: str, expires_in: float | None) -> Call[IssuedInvitation]:
    given = {} if expires_in is None else {"expires_in": expires_in}
    body = write(Invite, participant=participant, **given)
    return Call("POST", _of(project, "invitations"), _a(IssuedInvitation), body)


def participants(project: str) -> Call[list[ParticipantView]]:
    return Call("GET", _of(project, "participants"), _list(ParticipantView, "participants"))


def revoke(project: str, participant: str) -> Call[ParticipantView]:
    return Call("POST", _of(project, "participants", participant, "revoke"), _a(ParticipantView))


def submit(project: str, job: Mapping[str, Any]) -> Call[RunView]:
    return Call("POST", _of(project, "runs"), _a(RunView), {"job": dict(job)})


def check(project: str, job: Mapping[str, Any]) -> Call[dict[str, Any]]:
    return Call("POST", _of(project, "check"), dict, {"job": dict(job)})


def runs(project: str) -> Call[list[RunView]]:
    return Call("GET", _of(project, "runs"), _list(RunView, "runs"))


def run(project: str, run_id: str) -> Call[RunView]:
    return Call("GET", _of(project, "runs", run_id), _a(RunView))


def steer(project: str, run_id: str, action: str) -> Call[RunView]:
    return Call("POST", _of(project, "runs", run_id, action), _a(RunView))


def metrics(project: str, run_id: str) -> Call[list[dict[str, Any]]]:
    return Call("GET", _of(project, "runs", run_id, "metrics"), lambda body: list(body["rounds"]))


def outputs(project: str, run_id: str) -> Call[list[OutputView]]:
    return Call("GET", _of(project, "runs", run_id, "outputs"), _list(OutputView, "outputs"))


def output(project: str, run_id: str, name: str) -> Call[OutputLink]:
    return Call("GET", _of(project, "runs", run_id, "outputs", name), _a(OutputLink))


def models(project: str) -> Call[list[ModelView]]:
    return Call("GET", _of(project, "models"), _list(ModelView, "models"))


def model(project: str, version: int) -> Call[ModelView]:
    return Call("GET", _of(project, "models", version), _a(ModelView))


def promote(project: str, version: int, stage: str, reason: str) -> Call[ModelView]:
    body = write(Promote, stage=stage, reason=reason)
    return Call("POST", _of(project, "models", version, "promote"), _a(ModelView), body)


def rollback(project: str, reason: str) -> Call[ModelView]:
    return Call("POST", _of(project, "models", "rollback"), _a(ModelView), write(Rollback, reason=reason))


def download(project: str, version: int) -> Call[Download]:
    return Call("GET", _of(project, "models", version, "download"), _a(Download))


def audit(project: str) -> Call[list[dict[str, Any]]]:
    return Call("GET", _of(project, "audit"), lambda body: list(body["events"]))


def status() -> Call[dict[str, Any]]:
    return Call("GET", "/v1/status", dict)
