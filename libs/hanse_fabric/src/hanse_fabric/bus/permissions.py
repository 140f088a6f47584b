"""Bus permissions, generated from the table of subjects: for each right, the JetStream calls that it needs, no more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from hanse_fabric.subjects import LINK, STREAMS, SUBJECTS, Role, Subject, Verb

_API = "$JS.API"
ANSWERS_TO_SITES = "_R_.>"
"""The server rewrites the reply of a request that crosses from one account to another to such a subject, and lets one
answer back: no site can name the place where a service writes."""

_ANSWERS_OF_BEFORE = "_INBOX.*.*.*.r.*"
"""Inboxes of sites of release 0.1.0; no service's has that form."""


def inbox_prefix(role: Role, project: str = "", participant: str = "") -> str:
    """Where answers to this client go; nobody else may listen there."""
    return f"_INBOX.{project}.{participant}" if role is Role.PARTICIPANT else f"_INBOX.{role.value}"


def permissions_for(role: Role, *, region: str = "", project: str = "", participant: str = "") -> dict[str, list[str]]:
    """What a role may publish and subscribe to.

    Args:
        region, project, participant: for PARTICIPANT: whose; its permissions name them wherever a subject has those
            tokens.
    """
    own = {"region": region, "project": project, "participant": participant} if role is Role.PARTICIPANT else {}
    publish: set[str] = set()
    subscribe: set[str] = {f"{inbox_prefix(role, project, participant)}.>"}
    if role in _OPERATIONS:
        publish |= set(_OPERATIONS[role]())
    for row in SUBJECTS:
        for verb in row.rights.get(role, ()):
            publish |= set(_publishes(row, verb, own))
            if verb in (Verb.SERVE, Verb.HEAR):
                subscribe.add(_bound(row, own))
    return {"publish": sorted(publish), "subscribe": sorted(subscribe)}


def scope_of(region: str) -> dict[str, list[str]]:
    """What every site of a region may, for a scoped signing key: the bus fills in whose token it is, by its tags."""
    return permissions_for(
        Role.PARTICIPANT, region=region, project="{{tag(project)}}", participant="{{tag(site)}}"
    )  # fmt: skip


def permissions_of_leaf(region: str) -> dict[str, list[str]]:
    """What passes between a leaf node and the hub: what the sites of its region may do. Nothing that comes from there
    goes to an inbox: answers are services' alone."""
    return permissions_for(Role.PARTICIPANT, region=region, project="*", participant="*")


def _answers(row: Subject) -> Iterator[str]:
    """Where a service may answer: requests from other accounts come with a reply of the server's own making."""
    for role in row.rights:
        if role is Role.PARTICIPANT:
            yield ANSWERS_TO_SITES
        elif Verb.REQUEST in row.rights[role]:
            yield f"{inbox_prefix(role)}.>"
    if row is LINK:
        yield _ANSWERS_OF_BEFORE


def _publishes(row: Subject, verb: Verb, own: dict[str, str]) -> Iterator[str]:
    subject = _bound(row, own)
    if verb in (Verb.PUBLISH, Verb.REQUEST, Verb.TELL):
        yield subject
        return
    if verb is Verb.SERVE:
        yield from _answers(row)
    if row.stream is None:
        return
    stream = row.stream.name
    match verb:
        case Verb.FOLLOW:
            # The filter is part of this subject, so the server holds a consumer to it. There is no right to delete
            # consumers (it could not be bound to one's own): they end by themselves when nobody listens.
            yield f"{_API}.CONSUMER.CREATE.{stream}.*.{_prefix(row, own)}"
            if not own:
                yield _ask_leader(stream)
        case Verb.LAST:
            yield f"{_API}.DIRECT.GET.{stream}.{subject}"
            if not own:
                yield _ask_leader(stream)
        case Verb.PURGE:
            yield f"{_API}.STREAM.PURGE.{stream}"
        case Verb.WORK:
            yield f"{_API}.CONSUMER.MSG.NEXT.{stream}.{row.stream.workers}"
            yield f"$JS.ACK.{stream}.{row.stream.workers}.>"
        case Verb.PUBLISH | Verb.REQUEST | Verb.TELL | Verb.SERVE | Verb.HEAR:
            pass  # the stream adds nothing to them
        case unknown:
            assert_never(unknown)


def _ask_leader(stream: str) -> str:
    """Reading at the stream's leader, which knows all that was ever confirmed; a copy may be behind. The call names no
    subject, so it is for services alone: whoever may read a row of theirs may read its whole stream."""
    return f"{_API}.STREAM.MSG.GET.{stream}"


def _bound(row: Subject, own: dict[str, str]) -> str:
    return row.wildcard(**own)


def _prefix(row: Subject, own: dict[str, str]) -> str:
    """The subject up to its first free token, and `>`: a follower may narrow its filter, never widen it."""
    parts = _bound(row, own).split(".")
    free = parts.index("*") if "*" in parts else len(parts)
    return ".".join(parts) if free == len(parts) else ".".join([*parts[:free], ">"])


def _provisioning() -> Iterator[str]:
    yield f"{_API}.INFO"
    for stream in STREAMS:
        for call in ("STREAM.CREATE", "STREAM.UPDATE", "STREAM.INFO"):
            yield f"{_API}.{call}.{stream.name}"
        if stream.workers:
            yield f"{_API}.CONSUMER.DURABLE.CREATE.{stream.name}.{stream.workers}"
            yield f"{_API}.CONSUMER.CREATE.{stream.name}.{stream.workers}"
            yield f"{_API}.CONSUMER.INFO.{stream.name}.{stream.workers}"


def _backing_up() -> Iterator[str]:
    for stream in STREAMS:
        yield f"{_API}.STREAM.INFO.{stream.name}"
        yield f"{_API}.STREAM.SNAPSHOT.{stream.name}"
        yield f"$JS.SNAPSHOT.ACK.{stream.name}.>"  # the pieces are acknowledged one by one


def _restoring() -> Iterator[str]:
    for stream in STREAMS:
        yield f"{_API}.STREAM.INFO.{stream.name}"
        yield f"{_API}.STREAM.DELETE.{stream.name}"  # an empty one, or one that is overwritten by force
        yield f"{_API}.STREAM.RESTORE.{stream.name}"
        yield f"$JS.SNAPSHOT.RESTORE.{stream.name}.>"


_OPERATIONS = {Role.PROVISIONER: _provisioning, Role.BACKUP: _backing_up, Role.RESTORER: _restoring}
