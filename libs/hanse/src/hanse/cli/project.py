"""`hanse project`: create, list, invite, participants, roster, audit."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Annotated, Any

import typer

from hanse.cli.connection import ApiKey, Json, Url, hub
from hanse.cli.output import emit_json, emit_record, emit_table
from hanse.display import harmless
from hanse.listed import spent
from hanse_fabric.errors import invalid
from hanse_fabric.identity.keys import roster_digest
from hanse_fabric.names import HUB_REGION
from hanse_fabric.text_files import read_yaml
from hanse_fabric.tls import fingerprint

app = typer.Typer(no_args_is_help=True, help="Projects, their sites, and their audit.")


@app.command()
def create(
    name: str,
    schema: Annotated[Path, typer.Option(help="YAML file with the data's declared schema.")],
    description: str = "",
    terms: Annotated[
        Path | None, typer.Option(help="YAML file with what sites agree to before they join: docs/owner.md, Terms.")
    ] = None,
    url: Url = None,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Create a project."""
    asked = None if terms is None else read_yaml(terms, "terms file")
    declared = read_yaml(schema, "schema file")
    if not isinstance(declared, dict):
        raise invalid(f"schema file {schema}", declared, "a mapping", hint="see docs/owner.md")
    with hub(url, api_key) as connection:
        project = connection.projects.create(name, schema=declared, description=description, terms=asked)
    if json:
        emit_json({"project": project.name})
        return
    print(f"Project {project.name} is there. Next: hanse project invite {project.name} SITE")
    if bare := _without_values(declared):
        print(
            f"Of the categories {', '.join(bare)} the schema names no values: jobs must hash them (form: hashed). "
            "`hanse site values` shows a site's, for the schema of another project."
        )


def _without_values(schema: dict[str, Any]) -> list[str]:
    """The categories of a declared schema, which the hub has taken, that have no values."""
    columns = schema.get("features", ()) if schema.get("kind") == "tabular" else ()
    return [str(each["name"]) for each in columns if each.get("kind") == "category" and not each.get("values")]


@app.command("list")
def list_projects(url: Url = None, api_key: ApiKey = None, json: Json = False) -> None:
    """List the projects that your key may see."""
    with hub(url, api_key) as connection:
        listed = connection.projects.list()
    if json:
        emit_json(listed)
    else:
        emit_table("Projects", ("project", "description"), [(view.name, view.description) for view in listed])


@app.command()
def invite(
    project: str,
    participant: str,
    region: Annotated[
        str, typer.Option(help="Where the site is to connect: a region of the hub's operator.")
    ] = HUB_REGION,
    expires_in: Annotated[float | None, typer.Option(help="Seconds until the token expires.")] = None,
    url: Url = None,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Make a one-time join token for a site. It is shown once."""
    with hub(url, api_key) as connection:
        token = connection.projects.get(project).invite(participant, region=region, expires_in=expires_in)
        address = connection.url
        # Over TLS the hub's authority is known already, so that what it tells of it can be handed on.
        ca = connection.info().get("ca") if address.startswith("https:") else None
    known = {"ca_fingerprint": fingerprint(ca)} if ca else {}
    if json:
        emit_json({"token": token, "participant": participant, "url": address, **known})
    else:
        print(f"Give this to the administrator of {participant}; it works once:\n")
        by = f" --ca-fingerprint {known['ca_fingerprint']}" if known else ""
        print(f"  hanse site join {address} {token} --home {participant}{by}")


@app.command()
def participants(project: str, url: Url = None, api_key: ApiKey = None, json: Json = False) -> None:
    """List a project's sites."""
    with hub(url, api_key) as connection:
        listed = connection.projects.get(project).participants()
    if json:
        emit_json(listed)
    else:
        rows = [
            (
                p.participant,
                p.state,
                p.region,
                p.last_seen,
                p.version,
                p.device,
                spent(p),
            )
            for p in listed
        ]
        header = ("participant", "state", "region", "last seen", "version", "device", "privacy spent")
        emit_table("Participants", header, rows)
        for p in listed:
            if p.rules:
                lines = (f"{p.participant} says of its policy:", *(f"  {harmless(rule)}" for rule in p.rules))
                print("\n".join(lines))


@app.command()
def roster(project: str, url: Url = None, api_key: ApiKey = None, json: Json = False) -> None:
    """The keys of a project's sites, and the digest over them that sites pin in their policies."""
    with hub(url, api_key) as connection:
        keys = {p.participant: p.public_key for p in connection.projects.get(project).participants() if not p.revoked}
    digest = roster_digest(base64.b64decode(key) for key in keys.values()).hex()
    if json:
        emit_json({"roster": digest, "keys": keys})
    else:
        emit_table("Roster", ("participant", "public key"), list(keys.items()))
        print(f"roster: {digest}")


@app.command()
def revoke(project: str, participant: str, url: Url = None, api_key: ApiKey = None, json: Json = False) -> None:
    """End a site's membership: its keys stop working at once."""
    with hub(url, api_key) as connection:
        connection.projects.get(project).revoke(participant)
    if json:
        emit_json({"project": project, "participant": participant, "revoked": True})
    else:
        print(f"{participant} is no longer part of {project}.")


@app.command()
def absence(
    project: str,
    days: Annotated[int | None, typer.Option(help="Sites that were away for longer need another invitation.")] = None,
    unlimited: Annotated[bool, typer.Option("--any", help="Sites come back by their keys after any absence.")] = False,
    url: Url = None,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Say how long a site may be away and come back by its key alone."""
    if unlimited == (days is not None):
        raise invalid("--days", days, "a number of days, or --any")
    with hub(url, api_key) as connection:
        connection.projects.get(project).set_longest_absence(days)
    if json:
        emit_json({"project": project, "days": days})
        return
    print(f"{project}: sites come back by their keys after " + ("any absence." if days is None else f"{days} days."))


@app.command()
def terms(
    project: str,
    file: Annotated[Path | None, typer.Argument(help="YAML file with other terms; without: show those of now.")] = None,
    url: Url = None,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Show what sites agree to before they join, or write other terms, to which each must agree anew."""
    asked = None if file is None else read_yaml(file, "terms file")
    if file is not None and not isinstance(asked, dict):
        raise invalid(f"terms file {file}", asked, "a mapping", hint="see docs/owner.md")
    with hub(url, api_key) as connection:
        found = connection.projects.get(project)
        view = found.view() if asked is None else found.set_terms(**asked)
    if json:
        emit_json({"project": view.name, "terms": view.terms, "digest": view.terms_digest})
        return
    print("\n".join(map(harmless, view.terms_words)) or f"{project} has no terms: sites join without agreeing to any.")
    if view.terms_digest:
        print(f"Digest, by which sites agree: {view.terms_digest}")


@app.command()
def audit(project: str, url: Url = None, api_key: ApiKey = None, json: Json = False) -> None:
    """Who decided what, when, on whose authority."""
    with hub(url, api_key) as connection:
        events = connection.projects.get(project).audit()
    if json:
        emit_json(events)
        return
    for event in events:
        emit_record({event["at"]: f"{event['actor']} {event['action']} {event['subject']} ({event['authority']})"})
