"""Projects: a name and the schema of its sites' data."""

from __future__ import annotations

from hanse_coordinator.api.hub import HUB_AUDIT, Hub
from hanse_coordinator.api.paging import page_of
from hanse_coordinator.api.route import OWN, READ, Request, Route
from hanse_coordinator.api.terms import next_terms, project_view, tell_terms
from hanse_coordinator.records import ProjectRecord
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_schemas.http.paging import Page
from hanse_schemas.http.projects import Absence, CreateProject, ProjectList, ProjectView


async def create_project(hub: Hub, request: Request) -> ProjectView:
    body: CreateProject = request.body
    if body.name == HUB_AUDIT:
        raise invalid("name", body.name, "a name that is free for projects", hint="this one is the hub's own")
    record = ProjectRecord(
        name=body.name,
        data_schema=body.data_schema,
        description=body.description,
        terms=None if body.terms is None else next_terms(body.name, body.data_schema, body.terms),
        created_at=hub.clock.now(),
        created_by=request.caller.actor,
    )
    try:
        await hub.buckets.projects.create(record, project=body.name)
    except HanseError as error:
        if error.code is ErrorCode.CONFLICT:
            raise HanseError(
                error.code, f"name: a project {body.name!r} exists already", hint="choose another"
            ) from None
        raise
    await hub.audit(request.caller, body.name, "project.create", f"project:{body.name}")
    await tell_terms(hub, request, record)
    return project_view(record)


async def list_projects(hub: Hub, request: Request) -> ProjectList:
    found = [entry.value for entry in await hub.buckets.projects.list()]
    seen = sorted((record for record in found if request.caller.sees(record.name)), key=lambda record: record.name)
    page = page_of(seen, request.query, lambda record: record.name, by_name=True)
    return ProjectList(projects=tuple(project_view(record) for record in page))


async def get_project(hub: Hub, request: Request) -> ProjectView:
    return project_view(await hub.project(request.project))


async def set_absence(hub: Hub, request: Request) -> ProjectView:
    body: Absence = request.body
    entry = await hub.buckets.projects.change(
        lambda old: old.model_copy(update={"longest_absence_days": body.days}), project=request.project
    )
    await hub.audit(
        request.caller, request.project, "project.absence", f"project:{request.project}",
        days="any" if body.days is None else str(body.days),
    )  # fmt: skip
    return project_view(entry.value)


ROUTES = (
    Route(
        "POST", "/v1/projects", OWN, create_project, ProjectView, "Create a project",
        body=CreateProject, status=201, unscoped=True,
    ),
    Route("GET", "/v1/projects", READ, list_projects, ProjectList, "The projects that the key may see", query=Page),
    Route("GET", "/v1/projects/{project}", READ, get_project, ProjectView, "A project"),
    Route("POST", "/v1/projects/{project}/absence", OWN, set_absence, ProjectView,
          "Say how long a site may be away and come back without another invitation", body=Absence),
)  # fmt: skip
