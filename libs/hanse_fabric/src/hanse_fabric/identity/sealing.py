"""The compensator's key, which sites seal their seeds to: X25519, in a file that its owner alone may read."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from hanse_fabric.identity.keys import PrivateKey


class SealingKey(PrivateKey[X25519PrivateKey]):
    """X25519."""

    kind, called = X25519PrivateKey, "X25519"

    @property
    def public_bytes(self) -> bytes:
        """The 32 raw bytes of the public key, which sites pin in their policy."""
        return self._key.public_key().public_bytes_raw()

    @property
    def private_bytes(self) -> bytes:
        """The 32 raw bytes of the private key."""
        return self._key.private_bytes_raw()
