"""Who signs in first at the console of a hub on this machine: its operator, by a one-time link."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from hanse.calls import Call, each, one
from hanse.transport import Transport
from hanse_schemas.http.people import CreatePerson, IssuedPerson, PersonView
from hanse_schemas.http.reading import write

NAME = "operator"


async def first_link(url: str, api_key: str, ca: Path | None) -> str | None:
    """A link that lets the first person choose a password; None where somebody has an account already.

    A start without anybody having used the last start's link makes another, which voids that one.
    """
    transport = Transport(url, api_key, ca=ca)
    try:
        people = await transport.send(Call("GET", "/v1/people", each(PersonView, "people")))
        living = [person for person in people if person.state != "revoked"]
        if not living:
            body = write(CreatePerson, name=NAME, role="operator")
            return (await transport.send(Call("POST", "/v1/people", one(IssuedPerson), body))).link
        if all(person.state == "invited" and person.name == NAME for person in living):
            again = Call("POST", f"/v1/people/{quote(NAME)}/reset", one(IssuedPerson))
            return (await transport.send(again)).link
        return None
    finally:
        await transport.close()
