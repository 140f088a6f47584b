"""People who sign in with a browser, for the hub's operators: let in, given rights, reset, revoked."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from hanse.calls import Call, each, one
from hanse.transport import Transport
from hanse_schemas.http.people import CreatePerson, IssuedPerson, PersonView, Rights
from hanse_schemas.http.reading import write


class AsyncPeople:
    """The people who may sign in at a hub."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def add(
        self, name: str, *, role: str = "owner", projects: Sequence[str] | None = None, display: str = ""
    ) -> IssuedPerson:
        """Let a person in.

        Args:
            name: by which they sign in; an address of electronic mail will do.
            role: `owner`, or `operator`, who may do everything.
            projects: that an owner sees; None: all.
            display: how they are called.

        Returns:
            The person, with the one-time link by which they choose a password; it is shown once.
        """
        body = write(CreatePerson, name=name, role=role, projects=_given(projects), display=display)
        return await self._transport.send(Call("POST", "/v1/people", one(IssuedPerson), body))

    async def list(self) -> list[PersonView]:
        """All of them, by name."""
        return await self._transport.send(Call("GET", "/v1/people", each(PersonView, "people")))

    async def set_rights(self, name: str, *, role: str, projects: Sequence[str] | None = None) -> PersonView:
        """Say what a person may, as in `add`; it works at once."""
        body = write(Rights, role=role, projects=_given(projects))
        return await self._transport.send(Call("POST", _path(name, "rights"), one(PersonView), body))

    async def reset(self, name: str) -> IssuedPerson:
        """Void a person's password, authenticator and sessions; the answer has a one-time link for another."""
        return await self._transport.send(Call("POST", _path(name, "reset"), one(IssuedPerson)))

    async def revoke(self, name: str) -> PersonView:
        """Let a person in no more; their sessions end."""
        return await self._transport.send(Call("DELETE", _path(name), one(PersonView)))


def _given(projects: Sequence[str] | None) -> list[str] | None:
    return None if projects is None else [*projects]


def _path(name: str, *more: str) -> str:
    return "/".join(("/v1/people", quote(name, safe=""), *more))
