"""The compensator's key, which sites seal their seeds to: X25519, in a file that its owner alone may read."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.identity.keys import write_private_key


class SealingKey:
    """A private key. It is never printed."""

    def __init__(self, key: X25519PrivateKey) -> None:
        self._key = key

    @classmethod
    def create(cls) -> SealingKey:
        """A new key from the system's randomness."""
        return cls(X25519PrivateKey.generate())

    @classmethod
    def load(cls, path: Path) -> SealingKey:
        """Read a PEM file.

        Raises:
            HanseError: NOT_FOUND, or INVALID_INPUT when it is no unencrypted X25519 private key.
        """
        try:
            key = load_pem_private_key(path.read_bytes(), password=None)
        except FileNotFoundError:
            raise HanseError(ErrorCode.NOT_FOUND, f"{path}: no such key file") from None
        except OSError as error:
            raise HanseError(ErrorCode.INVALID_INPUT, f"key file {path}: {error.strerror}") from None
        except (ValueError, TypeError):
            key = None
        if not isinstance(key, X25519PrivateKey):
            raise invalid("key file", str(path), "a PEM file with an unencrypted X25519 private key")
        return cls(key)

    @classmethod
    def load_or_create(cls, path: Path) -> SealingKey:
        """The key in the file; a new one is written there if there is none. Two processes get the same key."""
        if not path.exists():
            created = cls.create()
            try:
                write_private_key(created._key, path)
                return created
            except HanseError as error:
                if error.code is not ErrorCode.CONFLICT:
                    raise
        return cls.load(path)

    @property
    def public_bytes(self) -> bytes:
        """The 32 raw bytes of the public key, which sites pin in their policy."""
        return self._key.public_key().public_bytes_raw()

    @property
    def private_bytes(self) -> bytes:
        """The 32 raw bytes of the private key."""
        return self._key.private_bytes_raw()
