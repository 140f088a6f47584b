"""Ed25519 keys: who signed a result, a model version or an outbox entry."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar, Generic, Self, TypeVar, cast

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from hanse_fabric.durable import write_durably
from hanse_fabric.errors import ErrorCode, HanseError, invalid

KEY_BYTES = 32

K = TypeVar("K", bound=Ed25519PrivateKey | X25519PrivateKey)


class VerifyKey:
    """A public key. Equal keys are equal by their 32 raw bytes."""

    def __init__(self, raw: bytes) -> None:
        """Raises HanseError INVALID_INPUT unless `raw` is 32 bytes."""
        if len(raw) != 32:
            raise invalid("public key", f"{len(raw)} bytes", "a raw Ed25519 key of 32 bytes")
        self._raw = bytes(raw)
        self._key = Ed25519PublicKey.from_public_bytes(self._raw)

    @property
    def raw(self) -> bytes:
        """The 32 bytes of the key."""
        return self._raw

    def pem(self) -> str:
        """The key as PEM text."""
        return self._key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    @classmethod
    def load(cls, path: Path) -> VerifyKey:
        """Read a PEM file.

        Raises:
            HanseError: NOT_FOUND, or INVALID_INPUT when it is no Ed25519 public key.
        """
        try:
            key = load_pem_public_key(_read(path))
        except ValueError:
            raise invalid("key file", str(path), "a PEM file with an Ed25519 public key") from None
        if not isinstance(key, Ed25519PublicKey):
            raise invalid("key file", str(path), "a PEM file with an Ed25519 public key")
        return cls(key.public_bytes(Encoding.Raw, PublicFormat.Raw))

    def is_valid(self, signature: bytes, data: bytes) -> bool:
        """Whether `signature` is this key's over `data`."""
        try:
            self._key.verify(signature, data)
        except InvalidSignature:
            return False
        return True

    def verify(self, signature: bytes, data: bytes, *, what: str) -> None:
        """Refuse a wrong signature.

        Args:
            what: names the signed thing in the error's message.

        Raises:
            HanseError: TAMPERED.
        """
        if not self.is_valid(signature, data):
            raise HanseError(
                ErrorCode.TAMPERED,
                f"{what}: the signature is not the one of the expected key",
                hint="whoever sent it does not hold that key; a site with new keys is revoked and invited again",
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VerifyKey) and self._raw == other._raw

    def __hash__(self) -> int:
        return hash(self._raw)


class PrivateKey(Generic[K]):
    """A private key. It is never printed, and its file is readable by its owner alone."""

    kind: ClassVar[type[Ed25519PrivateKey] | type[X25519PrivateKey]]
    called: ClassVar[str]

    def __init__(self, key: K) -> None:
        self._key = key

    @classmethod
    def create(cls) -> Self:
        """A new key from the system's randomness."""
        return cls(cast(K, cls.kind.generate()))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a PEM file.

        Raises:
            HanseError: NOT_FOUND, or INVALID_INPUT when it is no unencrypted private key of this kind.
        """
        try:
            key = load_pem_private_key(_read(path), password=None)
        except (ValueError, TypeError):
            key = None
        if not isinstance(key, cls.kind):
            raise invalid("key file", str(path), f"a PEM file with an unencrypted {cls.called} private key")
        return cls(cast(K, key))

    @classmethod
    def load_or_create(cls, path: Path) -> Self:
        """The key in the file; a new one is written there if there is none. Two processes get the same key."""
        if not path.exists():
            created = cls.create()
            try:
                created.save(path)
                return created
            except HanseError as error:
                if error.code is not ErrorCode.CONFLICT:
                    raise
        return cls.load(path)

    def save(self, path: Path) -> None:
        """Write a PEM file with mode 0600, whole or not at all.

        Raises:
            HanseError: CONFLICT when the file exists: a key is never overwritten.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        write_durably(partial, private_pem(self._key))
        try:
            os.link(partial, path)
        except FileExistsError:
            raise HanseError(ErrorCode.CONFLICT, f"{path}: a key is there already") from None
        finally:
            partial.unlink(missing_ok=True)


class SigningKey(PrivateKey[Ed25519PrivateKey]):
    """Ed25519."""

    kind, called = Ed25519PrivateKey, "Ed25519"

    @classmethod
    def from_seed(cls, seed: bytes) -> SigningKey:
        """The key of a seed of 32 bytes."""
        if len(seed) != 32:
            raise invalid("seed", f"{len(seed)} bytes", "an Ed25519 seed of 32 bytes")
        return cls(Ed25519PrivateKey.from_private_bytes(seed))

    @property
    def verify_key(self) -> VerifyKey:
        return VerifyKey(self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))

    @property
    def public_bytes(self) -> bytes:
        """The 32 raw bytes of the public key."""
        return self.verify_key.raw

    def sign(self, data: bytes) -> bytes:
        """The signature (64 bytes) over `data`."""
        return self._key.sign(data)


def roster_digest(keys: Iterable[bytes]) -> bytes:
    """SHA-256 over the sorted raw Ed25519 keys (32 bytes each) of a project's enrolled participants.

    Raises:
        HanseError: INVALID_INPUT for a key of another length.
    """
    listed = sorted(keys)
    for key in listed:
        if len(key) != KEY_BYTES:
            raise invalid("roster", f"a key of {len(key)} bytes", f"Ed25519 keys of {KEY_BYTES} bytes")
    return hashlib.sha256(b"".join(listed)).digest()


def private_pem(key: Ed25519PrivateKey | X25519PrivateKey) -> bytes:
    """A private key as PEM text, unencrypted."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise HanseError(ErrorCode.NOT_FOUND, f"{path}: no such key file") from None
    except OSError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"key file {path}: {error.strerror}") from None
