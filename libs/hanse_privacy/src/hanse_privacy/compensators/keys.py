"""Keys of several compensators: which lasting ones are meant, and the sealing keys of some hours that these sign."""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Collection, Sequence
from datetime import datetime

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.identity.keys import SigningKey, VerifyKey
from hanse_fabric.messages.masking import Compensators, SeedKey
from hanse_privacy.compensators.shares import Sharing

_KEY_BYTES = 32


def group_digest(owners: Sequence[bytes], needed: int) -> bytes:
    """SHA-256 that names a choice of compensators and how many of them are needed.

    Args:
        owners: their lasting Ed25519 keys, 32 bytes each, in any order.

    Raises:
        HanseError: INVALID_INPUT for numbers that no `Sharing` has, a key of another length, or one that comes twice.
    """
    Sharing(needed, len(owners))
    for owner in owners:
        if len(owner) != _KEY_BYTES:
            raise invalid("compensators", f"a key of {len(owner)} bytes", f"Ed25519 keys of {_KEY_BYTES} bytes")
    if len(set(owners)) < len(owners):
        raise invalid("compensators", f"{len(owners)} keys", "keys of which no two are the same")
    return hashlib.sha256(b"hanse compensators 1" + struct.pack(">B", needed) + b"".join(sorted(owners))).digest()


def digest_of(group: Compensators) -> bytes:
    """`group_digest` of a group: the same whoever of them is gone.

    Raises:
        HanseError: INVALID_INPUT, also where its keys are not sorted by owner, or so many are gone that fewer are left
            than are needed.
    """
    present = [key.owner for key in group.keys]
    if present != sorted(present):
        raise invalid("compensators", "keys in another order", "keys sorted by owner")
    digest = group_digest(group.owners, group.needed)
    if len(present) < group.needed:
        raise invalid("compensators.gone", len(group.gone or ()), f"{len(group.owners) - group.needed} of them at most")
    return digest


def sharing_of(group: Compensators) -> Sharing:
    """Who holds which seed, by places among `group.owners`."""
    return Sharing(group.needed, len(group.owners))


def statement(key: bytes, until: datetime) -> bytes:
    """What a compensator signs with its lasting key: an X25519 key, and until when seeds are sealed to it."""
    return b"hanse seed key 1" + key + struct.pack(">q", round(until.timestamp() * 1000))


def signed_key(owner: SigningKey, key: bytes, until: datetime) -> SeedKey:
    """An X25519 public key (32 bytes) under its owner's signature."""
    made = {"owner": owner.public_bytes, "key": key, "signature": owner.sign(statement(key, until))}
    return SeedKey(until=until, **{name: base64.b64encode(value) for name, value in made.items()})


def check_group(group: Compensators, pinned: Collection[bytes], needed: int, now: datetime | None) -> None:
    """Whether seeds may be shared among a group.

    Args:
        pinned: the lasting keys that are trusted, all of which are wanted.
        needed: how many of them are to be needed.
        now: the time; None: keys whose time is over pass.

    Raises:
        HanseError: POLICY for other compensators, or another number that is needed; TAMPERED for a key that its owner
            has not signed; GONE for one whose time is over.
    """
    if digest_of(group) != group_digest(list(pinned), needed):
        raise HanseError(
            ErrorCode.POLICY,
            f"compensators: {group.needed} of {_shown(group.owners)} are announced, "
            f"{needed} of {_shown(pinned)} are pinned",
            hint="ask who runs the compensators whether their keys have changed, and pin them; a stranger's is never "
            "used",
        )
    for key in group.keys:
        VerifyKey(key.owner).verify(key.signature, statement(key.key, key.until), what="a compensator's sealing key")
        if now is not None and key.until <= now:
            raise HanseError(
                ErrorCode.GONE,
                f"compensators: the sealing key of {_shown([key.owner])} was to be used until {key.until.isoformat()}",
                hint="see that this compensator runs and that the clocks agree",
            )


def _shown(keys: Collection[bytes]) -> str:
    return ", ".join(base64.b64encode(key).decode() for key in sorted(keys))
