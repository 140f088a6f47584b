"""Sealed seeds: what a participant hands the compensator through a hub that cannot open it.

X25519 with a fresh key of the sender (RFC 7748), HKDF-SHA256 (RFC 5869) over the shared secret, and ChaCha20-Poly1305
(RFC 8439). Project, run, session, participant and the digest of what was asked are authenticated along, so that a
sealed seed serves in no other sum, for nobody else and for no other request. The Ed25519 signature over `statement`
says who sent it. A seal without a request is of release 0.1.0. No numpy here.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.identity.keys import roster_digest as roster_digest
from hanse_fabric.messages.masking import SealedSeed

KEY_BYTES = 32
_SEED_BYTES = 32
_TAG_BYTES = 16
_NOTE = struct.Struct(">32sI?32s")
_BOUND = struct.Struct(">32sI?32s32s16s")
# The key is used once, so its nonce may be fixed.
_NONCE = bytes(12)


@dataclass(frozen=True, slots=True)
class SeedNote:
    """What is sealed.

    Attributes:
        seed: 32 bytes, of which the participant's masks are made; never shown.
        minimum: the participant lets its mask be summed with no fewer participants.
        roster: `roster_digest` that the participant's policy pins; None where it pins none.
        work: digest of the work, 32 bytes; None with a seal that is bound to no request.
        tag: by which the participant says that its answer is near an earlier one, 16 bytes; None: it says nothing.
        more: further seeds, where each of several compensators holds some of the mask's.
    """

    seed: bytes = field(repr=False)
    minimum: int
    roster: bytes | None = None
    work: bytes | None = None
    tag: bytes | None = None
    more: tuple[bytes, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        for seed in self.seeds:
            if len(seed) != _SEED_BYTES:
                raise invalid("seed", f"{len(seed)} bytes", f"a seed of {_SEED_BYTES} bytes")
        if not 1 <= self.minimum < 2**32:
            raise invalid("minimum", self.minimum, "a number of participants, 1 or more")
        if self.roster is not None and len(self.roster) != 32:
            raise invalid("roster", f"{len(self.roster)} bytes", "a SHA-256 of 32 bytes")
        if self.work is not None and len(self.work) != 32:
            raise invalid("work", f"{len(self.work)} bytes", "a SHA-256 of 32 bytes")
        if self.tag is not None and len(self.tag) != _TAG_BYTES:
            raise invalid("tag", f"{len(self.tag)} bytes", f"{_TAG_BYTES} bytes")

    @property
    def seeds(self) -> tuple[bytes, ...]:
        """All that it holds."""
        return (self.seed, *self.more)


def seal(
    public_key: bytes, plaintext: SeedNote, *, project: str, run: str, session: str, participant: str,
    request: bytes | None = None, group: bytes = b"",
) -> bytes:  # fmt: skip
    """Seal a note so that only the holder of the private key can open it: 165 bytes, always (117 without a request),
    and 32 for each further seed.

    Args:
        public_key: the recipient's, X25519, 32 bytes.
        request: digest of what was asked, 32 bytes; None: of a hub of release 0.1.0.
        group: names the compensators that share the mask (`hanse_privacy.compensators.keys`); empty: one has all of it.

    Raises:
        HanseError: INVALID_INPUT when the public key is not one.
    """
    own = X25519PrivateKey.generate()
    ephemeral = own.public_key().public_bytes_raw()
    try:
        shared = own.exchange(X25519PublicKey.from_public_bytes(public_key))
    except ValueError:
        raise invalid("public_key", f"{len(public_key)} bytes", "an X25519 public key of 32 bytes") from None
    context = _context(project, run, session, participant) + (request or b"")
    cipher = ChaCha20Poly1305(_key(shared, ephemeral, public_key, bound=request is not None, group=group))
    return ephemeral + cipher.encrypt(_NONCE, _packed(plaintext, bound=request is not None), context)


def open_sealed(
    private_key: bytes, sealed: bytes, *, project: str, run: str, session: str, participant: str,
    request: bytes | None = None, group: bytes = b"",
) -> SeedNote:  # fmt: skip
    """Open what `seal` made, for the same project, run, session, participant, request and group.

    Raises:
        HanseError: TAMPERED when it was sealed for another key or context, was changed, or was cut.
    """
    private = X25519PrivateKey.from_private_bytes(private_key)
    ephemeral, bound = sealed[:KEY_BYTES], request is not None
    try:
        shared = private.exchange(X25519PublicKey.from_public_bytes(ephemeral))
        key = _key(shared, ephemeral, private.public_key().public_bytes_raw(), bound=bound, group=group)
        context = _context(project, run, session, participant) + (request or b"")
        return _unpacked(ChaCha20Poly1305(key).decrypt(_NONCE, sealed[KEY_BYTES:], context), bound=bound)
    except (ValueError, InvalidTag, struct.error, HanseError):
        raise HanseError(
            ErrorCode.TAMPERED,
            f"sealed seed of {participant} for {session}: it does not open",
            hint="it was sealed for another compensator's key or another session, or changed on its way",
        ) from None


def statement(project: str, run: str, session: str, seed: SealedSeed) -> bytes:
    """What a participant signs with its enrolled key: whose seed it is, for which sum, the masks' shapes, the noise."""
    shape = seed.update
    numbers = struct.pack(
        ">?QQI", shape is not None, shape.u64 if shape else 0, shape.u32 if shape else 0, seed.tally
    )  # fmt: skip
    version, request = (b"1", b"") if seed.request is None else (b"2", bytes.fromhex(seed.request))
    narrow = b""
    if shape is not None and (shape.u16 or shape.u8):
        # A statement of another kind: these numbers are never taken for the first bytes of a seal.
        narrow = b"narrow "
        numbers += struct.pack(">QQ", shape.u16 or 0, shape.u8 or 0)
    if shape is not None and shape.u48:
        narrow += b"48 "
        numbers += struct.pack(">Q", shape.u48)
    if shape is not None and shape.u40:
        narrow += b"40 "
        numbers += struct.pack(">Q", shape.u40)
    what = b"hanse sealed seed " + narrow + version
    if seed.parts is not None:
        what = b"hanse sealed seed with noise " + narrow + version + hashlib.sha256(seed.parts).digest()
    if seed.seals is not None:
        digests = b"".join(hashlib.sha256(each).digest() for each in seed.seals)
        what = b"hanse shared seeds " + narrow + version + hashlib.sha256(digests).digest()
    return what + _context(project, run, session, seed.participant) + request + numbers + seed.sealed


def _context(*parts: str) -> bytes:
    """Unambiguous whatever the parts contain: each after its length."""
    encoded = [part.encode() for part in parts]
    return b"".join(struct.pack(">I", len(part)) + part for part in encoded)


def _packed(note: SeedNote, *, bound: bool) -> bytes:
    if bound != (note.work is not None):
        raise invalid("work", None, "the digest of the work with a request, and none without")
    told = note.seed, note.minimum, note.roster is not None, note.roster or bytes(32)
    packed = _BOUND.pack(*told, note.work, note.tag or bytes(_TAG_BYTES)) if bound else _NOTE.pack(*told)
    return packed + b"".join(note.more)


def _unpacked(data: bytes, *, bound: bool) -> SeedNote:
    form = _BOUND if bound else _NOTE
    seed, minimum, pinned, roster, *rest = form.unpack(data[: form.size])
    work, tag = rest or (None, None)
    more = tuple(data[at : at + _SEED_BYTES] for at in range(form.size, len(data), _SEED_BYTES))
    return SeedNote(seed, minimum, roster if pinned else None, work, tag if tag and any(tag) else None, more)


def _key(shared: bytes, ephemeral: bytes, recipient: bytes, *, bound: bool, group: bytes) -> bytes:
    # Both public keys go in, so that the key is of this exchange alone (RFC 7748, section 6.1).
    info = (b"hanse sealed seed 2" if bound else b"hanse sealed seed 1") + ephemeral + recipient
    if group:
        info = b"hanse shared seeds 2" + group + ephemeral + recipient
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(shared)
