"""NATS keys: Ed25519 keys in NATS's base32 form, with a kind and a checksum (nats.io/nkeys)."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from enum import IntEnum

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from hanse_fabric.errors import HanseError, invalid

_SEED = 18 << 3


class KeyKind(IntEnum):
    """The first byte of an encoded public key; its first letter is O, A or U."""

    OPERATOR = 14 << 3
    ACCOUNT = 0
    USER = 20 << 3


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A private NATS key. `repr` does not show it."""

    kind: KeyKind
    private: Ed25519PrivateKey

    @classmethod
    def create(cls, kind: KeyKind) -> KeyPair:
        return cls(kind, Ed25519PrivateKey.generate())

    @classmethod
    def from_seed(cls, seed: str) -> KeyPair:
        """Read a seed (`S...`).

        Raises:
            HanseError: INVALID_INPUT; the seed itself is not repeated in the message.
        """
        try:
            raw = _decode(seed.strip())
            if len(raw) != 34 or raw[0] & 0xF8 != _SEED:
                raise ValueError
            kind = KeyKind((raw[0] & 0x07) << 5 | raw[1] >> 3)
        except (ValueError, HanseError):
            raise invalid("seed", "(not shown)", "a NATS seed (S...)") from None
        return cls(kind, Ed25519PrivateKey.from_private_bytes(raw[2:]))

    def derived(self, kind: KeyKind, name: str) -> KeyPair:
        """A key of its own for each name, made of this one (RFC 5869): whoever has it knows neither this key nor
        another that was made so."""
        raw = HKDF(SHA256(), 32, salt=None, info=b"hanse key " + name.encode()).derive(self.private.private_bytes_raw())
        return KeyPair(kind, Ed25519PrivateKey.from_private_bytes(raw))

    @property
    def seed(self) -> str:
        first = _SEED | self.kind >> 5
        second = (self.kind & 0x1F) << 3
        return _encode(bytes((first, second)) + self.private.private_bytes_raw())

    @property
    def public(self) -> str:
        return encode_public(self.kind, self.private.public_key().public_bytes_raw())

    def sign(self, data: bytes) -> bytes:
        return self.private.sign(data)

    def __repr__(self) -> str:
        return f"KeyPair({self.public})"


def encode_public(kind: KeyKind, raw: bytes) -> str:
    """The encoded form of 32 raw bytes."""
    return _encode(bytes((kind,)) + raw)


def decode_public(text: str, kind: KeyKind) -> bytes:
    """The 32 raw bytes of an encoded public key.

    Raises:
        HanseError: INVALID_INPUT when it is not such a key of that kind.
    """
    try:
        raw = _decode(text)
        if len(raw) != 33 or raw[0] != kind:
            raise ValueError
    except (ValueError, HanseError):
        raise invalid("key", text, f"a NATS {kind.name.lower()} key") from None
    return raw[1:]


def verify(public: str, kind: KeyKind, data: bytes, signature: bytes) -> bool:
    """Whether `signature` over `data` is by the key."""
    try:
        Ed25519PublicKey.from_public_bytes(decode_public(public, kind)).verify(signature, data)
    except InvalidSignature:
        return False
    return True


def _encode(raw: bytes) -> str:
    checked = raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")
    return base64.b32encode(checked).decode().rstrip("=")


def _decode(text: str) -> bytes:
    raw = base64.b32decode(text + "=" * (-len(text) % 8))
    body, checksum = raw[:-2], raw[-2:]
    if binascii.crc_hqx(body, 0).to_bytes(2, "little") != checksum:
        raise ValueError("checksum")
    return body
