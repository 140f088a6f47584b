"""What an operator has made does not outlive their rights: whether who made an API key may still make one."""

from __future__ import annotations

from datetime import datetime

from hanse_coordinator.people.held import Held
from hanse_coordinator.people.records import PersonRecord, person_key

_PERSON = "person:"


async def may_still(people: Held[PersonRecord], actor: str, then: datetime) -> bool:
    """Whether somebody who made a key `then` is an operator now. Of actors who are no people: always.

    Who was shut out and let in anew is somebody else: what they made before stays void.
    """
    if not actor.startswith(_PERSON):
        return True
    name = actor.removeprefix(_PERSON)
    person = await people.find(person_key(name))
    return (
        person is not None
        and person.name == name
        and not person.revoked
        and person.role == "operator"
        and person.created_at <= then
    )
