"""`hanse people`: who may sign in with a browser."""

from __future__ import annotations

from typing import Annotated

import typer

from hanse.cli.connection import ApiKey, Json, Url, hub
from hanse.cli.output import emit_json, emit_table
from hanse_schemas.http.people import IssuedPerson, PersonView

app = typer.Typer(no_args_is_help=True, help="People who sign in with a browser, and what they may.")

Operator = Annotated[bool, typer.Option("--operator", help="They may do everything; otherwise they own projects.")]
Projects = Annotated[list[str] | None, typer.Option("--project", help="A project that they see; default: all.")]


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="By which they sign in, such as ada@example.org.")],
    operator: Operator = False,
    project: Projects = None,
    display: Annotated[str, typer.Option(help="How they are called.")] = "",
    url: Url = None,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Let a person in: prints a one-time link, by which they choose a password."""
    with hub(url, api_key) as connection:
        made = connection.people.add(name, role=_role(operator), projects=project, display=display)
    _tell_link(made, json)


@app.command("list")
def list_people(url: Url = None, api_key: ApiKey = None, json: Json = False) -> None:
    """Who may sign in."""
    with hub(url, api_key) as connection:
        found = connection.people.list()
    if json:
        emit_json(found)
        return
    rows = [
        (one.name, one.display, one.role, _projects(one), one.state, "yes" if one.totp else "no", one.sessions)
        for one in found
    ]
    emit_table("People", ("name", "called", "role", "projects", "state", "authenticator", "sessions"), rows)


@app.command()
def rights(
    name: str,
    operator: Operator = False,
    project: Projects = None,
    url: Url = None,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Say what a person may; it works at once."""
    with hub(url, api_key) as connection:
        changed = connection.people.set_rights(name, role=_role(operator), projects=project)
    if json:
        emit_json(changed)
        return
    print(f"{changed.name} is {changed.role} of {_projects(changed)}.")


@app.command()
def reset(name: str, url: Url = None, api_key: ApiKey = None, json: Json = False) -> None:
    """Void a person's password, authenticator and sessions: prints a one-time link for another password."""
    with hub(url, api_key) as connection:
        made = connection.people.reset(name)
    _tell_link(made, json)


@app.command()
def revoke(name: str, url: Url = None, api_key: ApiKey = None, json: Json = False) -> None:
    """Let a person in no more: their sessions end at once."""
    with hub(url, api_key) as connection:
        gone = connection.people.revoke(name)
    if json:
        emit_json(gone)
        return
    print(f"{gone.name} may not sign in any more.")


def _role(operator: bool) -> str:
    return "operator" if operator else "owner"


def _projects(one: PersonView) -> str:
    return "all projects" if one.projects is None else ", ".join(one.projects)


def _tell_link(made: IssuedPerson, json: bool) -> None:
    if json:
        emit_json(made)
        return
    where = made.link or f"<the console>/#/welcome/{made.token}"
    print(f"{made.name} chooses a password here, once, until {made.token_expires_at:%Y-%m-%d %H:%M} UTC:\n{where}")
