"""Who asks without a key, by a site's signature alone.

A stranger who guesses names of projects and of sites is answered as somebody with another key would be, whether there
is such a site or not, after as much work: who takes part in what is told to nobody.
"""

from __future__ import annotations

from hanse_coordinator.api.hub import Hub
from hanse_coordinator.api.route import Request
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey, VerifyKey
from hanse_fabric.messages.participants import ParticipantRecord

_NOBODYS = SigningKey.create().public_bytes


async def who_signed(
    hub: Hub, request: Request, statement: bytes, signature: bytes, *, project: str, participant: str, what: str
) -> ParticipantRecord:
    """The participant of these names, who may have been revoked, and has signed the statement.

    Args:
        what: is signed, for people.

    Raises:
        HanseError: TAMPERED where it is not that participant's signature, or there is none of these names.
    """
    address, limiter = hub.address_of(request.http), hub.keys.limiter
    with limiter.looking_up(address, what):
        entry = await hub.buckets.participants.get(project=project, participant=participant)
    key = VerifyKey(entry.value.public_key if entry is not None else _NOBODYS)
    if not key.is_valid(signature, statement) or entry is None:
        limiter.failed(address)
        raise HanseError(
            ErrorCode.TAMPERED, f"{what} of {participant}: the signature is not the one of the expected key",
            hint="this hub knows no such site by this key: it was invited anew, with other keys, or the hub was "
            "restored to before it joined; ask the project's owner to invite it",
        )  # fmt: skip
    return entry.value


def require_member(record: ParticipantRecord) -> None:
    """FORBIDDEN for one who was revoked, or has left; to be asked of somebody who has signed."""
    if record.revoked:
        raise HanseError(
            ErrorCode.FORBIDDEN,
            f"participant: {record.participant!r} was revoked, or has left",
        )
