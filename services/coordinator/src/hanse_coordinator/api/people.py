"""People who sign in, for the hub's operators: let in by a one-time link, given rights, reset, revoked."""

from __future__ import annotations

from collections.abc import Sequence

from hanse_coordinator.api.hub import HUB_AUDIT, Hub
from hanse_coordinator.api.paging import page_of
from hanse_coordinator.api.route import OPERATE, Request, Route, view
from hanse_coordinator.people.entrance import with_link
from hanse_coordinator.people.records import PersonRecord, person_key
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.identity.secrets import Credential
from hanse_schemas.http.paging import Page
from hanse_schemas.http.people import CreatePerson, IssuedPerson, PersonList, PersonView, Rights


async def create_person(hub: Hub, request: Request) -> IssuedPerson:
    body: CreatePerson = request.body
    await _check(hub, body)
    made = PersonRecord(
        name=body.name,
        display=body.display,
        role=body.role,
        projects=body.projects,
        created_at=hub.clock.now(),
        created_by=request.caller.actor,
    )
    there = await hub.people.read(person_key(body.name))
    if there is None:
        record, token = with_link(made, made.created_at)
        await hub.people.create(person_key(body.name), record)
    else:
        if not there.revoked or there.name != body.name:
            raise HanseError(
                ErrorCode.CONFLICT, f"name: {body.name!r} is here already", hint="give a one-time link by a reset"
            )
        # Sessions of before stay over: the generation goes on.
        record, token = with_link(made.model_copy(update={"generation": there.generation}), made.created_at)
        await hub.people.change(person_key(body.name), lambda _: record)
    await hub.audit(
        request.caller, HUB_AUDIT, "person.create", f"person:{body.name}", role=body.role,
        projects=_listed(body.projects),
    )  # fmt: skip
    return _issued(hub, record, token)


async def list_people(hub: Hub, request: Request) -> PersonList:
    found = sorted((entry.value for entry in await hub.buckets.people.list()), key=lambda record: record.name)
    page = page_of(found, request.query, lambda record: record.name, by_name=True)
    return PersonList(people=tuple(_view(hub, record) for record in page))


async def get_person(hub: Hub, request: Request) -> PersonView:
    return _view(hub, await _there(hub, request))


async def set_rights(hub: Hub, request: Request) -> PersonView:
    body: Rights = request.body
    _refuse_oneself(request)
    await _check(hub, body)
    _refuse_foreign(await _there(hub, request))
    record = await hub.people.change(
        person_key(request.path["person"]),
        lambda old: old.model_copy(update={"role": body.role, "projects": body.projects}),
    )
    await hub.audit(
        request.caller, HUB_AUDIT, "person.rights", f"person:{record.name}", role=body.role,
        projects=_listed(body.projects),
    )  # fmt: skip
    return _view(hub, record)


async def reset_person(hub: Hub, request: Request) -> IssuedPerson:
    _refuse_oneself(request)
    there = await _there(hub, request)
    _refuse_foreign(there)
    if there.revoked:
        raise HanseError(ErrorCode.GONE, f"person: {there.name} was revoked", hint="let them in anew by the same name")
    token: Credential | None = None

    def alter(old: PersonRecord) -> PersonRecord:
        nonlocal token
        changed, token = with_link(old, hub.clock.now())
        return changed

    record = await hub.people.change(person_key(there.name), alter)
    if token is None:
        raise RuntimeError("a reset without a link")
    await hub.audit(request.caller, HUB_AUDIT, "person.reset", f"person:{record.name}")
    return _issued(hub, record, token)


async def revoke_person(hub: Hub, request: Request) -> PersonView:
    _refuse_oneself(request)
    await _there(hub, request)
    gone = {"revoked": True, "password": None, "totp": None, "asked_totp": None, "link": None, "link_expires_at": None}
    record = await hub.people.change(
        person_key(request.path["person"]),
        lambda old: old.model_copy(update={**gone, "generation": old.generation + (not old.revoked)}),
    )
    await hub.audit(request.caller, HUB_AUDIT, "person.revoke", f"person:{record.name}")
    return _view(hub, record)


async def _there(hub: Hub, request: Request) -> PersonRecord:
    name = str(request.path["person"])
    found = await hub.people.read(person_key(name))
    if found is None or found.name != name:
        raise HanseError(ErrorCode.NOT_FOUND, f"there is no person {name!r}")
    return found


async def _check(hub: Hub, rights: Rights) -> None:
    if rights.role == "operator" and rights.projects is not None:
        raise invalid("projects", list(rights.projects), "possible for an operator, who is for the whole hub")
    for project in rights.projects or ():
        await hub.project(project)


def _refuse_oneself(request: Request) -> None:
    if request.path["person"] == request.caller.person:
        raise HanseError(
            ErrorCode.CONFLICT, f"person: {request.caller.person} is who asks", hint="another operator does that"
        )


def _refuse_foreign(person: PersonRecord) -> None:
    if person.source != "local":
        raise HanseError(
            ErrorCode.CONFLICT, f"person: what {person.name} may follows from groups of the provider of identities",
            hint="change the groups there; to keep them out at once, revoke them here",
        )  # fmt: skip


def _listed(projects: Sequence[str] | None) -> str:
    return "all" if projects is None else ", ".join(projects)


def _view(hub: Hub, record: PersonRecord) -> PersonView:
    return view(PersonView, record, **_own(hub, record))


def _own(hub: Hub, record: PersonRecord) -> dict[str, object]:
    invited = record.source == "local" and record.password is None
    state = "revoked" if record.revoked else "invited" if invited else "active"
    return {"state": state, "totp": record.totp is not None, "sessions": hub.sessions.of(record)}


def _issued(hub: Hub, record: PersonRecord, token: Credential) -> IssuedPerson:
    # After the #, for that part of an address no browser sends, and no server writes down.
    link = f"{hub.info.console_url}/#/welcome/{token.text}" if hub.info.console_url else None
    own = {"token": token.text, "token_expires_at": record.link_expires_at, "link": link}
    return view(IssuedPerson, record, **own, **_own(hub, record))


_ONE = "/v1/people/{person}"
ROUTES = (
    Route("POST", "/v1/people", OPERATE, create_person, IssuedPerson, "Let a person in, by a one-time link",
          body=CreatePerson, status=201, unscoped=True),
    Route("GET", "/v1/people", OPERATE, list_people, PersonList, "All people who may sign in", query=Page,
          unscoped=True),
    Route("GET", _ONE, OPERATE, get_person, PersonView, "A person", unscoped=True),
    Route("POST", _ONE + "/rights", OPERATE, set_rights, PersonView,
          "Say what a person may; it works at once", body=Rights, unscoped=True),
    Route("POST", _ONE + "/reset", OPERATE, reset_person, IssuedPerson,
          "Void a person's password, authenticator and sessions, and give a one-time link", unscoped=True),
    Route("DELETE", _ONE, OPERATE, revoke_person, PersonView, "Let a person in no more; their sessions end",
          unscoped=True),
)  # fmt: skip
