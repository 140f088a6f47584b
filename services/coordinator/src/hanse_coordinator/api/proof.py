"""Proof of possession: a joining site answers a challenge of the hub with a signature by each of its keys.

So a public key that everybody may know opens nothing, and nobody enrols a key of somebody else's.
"""

from __future__ import annotations

import base64
import binascii
import secrets as randomness

from hanse_coordinator.api.hub import Hub
from hanse_coordinator.api.route import PUBLIC, Request, Route
from hanse_coordinator.records import InvitationRecord
from hanse_fabric.bus import nkeys
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.identity import secrets
from hanse_fabric.identity.keys import KEY_BYTES, VerifyKey
from hanse_fabric.records import Entry
from hanse_schemas.http.joining import AskChallenge, Challenge, Join, JoinProof


async def give_challenge(hub: Hub, request: Request) -> Challenge:
    """A new challenge for a token. It is kept with the token's record, so that any replica takes the answer, once.

    Each joining needs one, and is in the project's audit for good: a site may join again, but not as often as it likes.
    """
    body: AskChallenge = request.body
    token = secrets.parse(body.token, secrets.Kind.JOIN_TOKEN)
    known = await invitation_entry(hub, request, token)
    if not hub.challenges.take(token.id):
        raise HanseError(
            ErrorCode.TOO_MANY, "token: a site asks to join by it again and again",
            hint="try again in some minutes; the token is still good",
        )  # fmt: skip
    challenge = randomness.token_hex(16)
    await hub.buckets.invitations.change(
        lambda record: record.model_copy(update={"challenge": challenge}), known, invitation=token.id
    )
    return Challenge(challenge=challenge)


async def invitation_of(hub: Hub, request: Request, token: secrets.Credential) -> InvitationRecord:
    """As `invitation_entry`, the record alone."""
    return (await invitation_entry(hub, request, token)).value


async def invitation_entry(hub: Hub, request: Request, token: secrets.Credential) -> Entry[InvitationRecord]:
    """The record behind a token that somebody shows.

    Raises:
        HanseError: UNAUTHENTICATED, which does not tell whether its id was known.
    """
    address, limiter = hub.address_of(request.http), hub.keys.limiter
    with limiter.looking_up(address, "token"):
        entry = await hub.buckets.invitations.get(invitation=token.id)
    if entry is None or not token.matches(entry.value.hash):
        limiter.failed(address)
        raise HanseError(
            ErrorCode.UNAUTHENTICATED,
            "token: this join token is not known here",
            hint="ask the project's owner for one",
        )
    return entry


async def good_invitation(hub: Hub, request: Request, token: secrets.Credential) -> InvitationRecord:
    """The record behind a token that may still be joined with, or was by this site.

    Raises:
        HanseError: UNAUTHENTICATED; GONE for one that was revoked, or has expired unused, or whose site is no member.
    """
    found = await invitation_of(hub, request, token)
    if found.revoked:
        raise gone("it was revoked")
    if found.used_by is not None:
        there = await hub.buckets.participants.get(project=found.project, participant=found.participant)
        if there is not None and (there.value.revoked or there.value.api_key != found.id):
            raise gone(f"the participant {found.participant!r} that it made was revoked, or has joined by another")
    if found.used_by is None and found.expires_at <= hub.clock.now():
        raise gone(f"it expired at {found.expires_at:%Y-%m-%d %H:%M:%S} UTC")
    return found


def gone(why: str) -> HanseError:
    """A token that is no longer good."""
    return HanseError(
        ErrorCode.GONE, f"token: this join token is no longer good: {why}", hint="ask the project's owner for a new one"
    )


def check_proof(body: Join, token: secrets.Credential) -> None:
    """Whether whoever joins has both keys that it names.

    Raises:
        HanseError: INVALID_INPUT for what is no key; FORBIDDEN, naming what is missing or signed by another key.
    """
    try:
        raw = base64.b64decode(body.public_key, validate=True)
    except (ValueError, binascii.Error):
        raw = b""
    if len(raw) != KEY_BYTES:
        raise invalid("public_key", body.public_key, "a raw Ed25519 key: 32 bytes in base64")
    if not body.challenge:
        raise HanseError(
            ErrorCode.FORBIDDEN, "challenge: none is answered; a site that joins proves that it has its keys",
            hint="upgrade the site's software (it is of release 0.1.0, which gave no proof); the token is still good",
        )  # fmt: skip
    proof = JoinProof(challenge=body.challenge, token=token.hash, public_key=body.public_key, bus_key=body.bus_key)
    signed = proof.canonical()
    by_key = {
        "signature": VerifyKey(raw).is_valid(body.signature, signed),
        "bus_signature": nkeys.verify(body.bus_key, nkeys.KeyKind.USER, signed, body.bus_signature),
    }
    for field, valid in by_key.items():
        if not valid:
            raise HanseError(
                ErrorCode.FORBIDDEN, f"{field}: it is not by the key that joins, over this challenge, token and keys",
                hint="join with keys of one's own, by `hanse-datapod join`",
            )  # fmt: skip


ROUTES = (
    Route("POST", "/v1/join/challenge", PUBLIC, give_challenge, Challenge, "What the proof of a joining site must hold",
          body=AskChallenge),
)  # fmt: skip
