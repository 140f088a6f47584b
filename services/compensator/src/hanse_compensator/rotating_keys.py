"""Sealing keys of some hours: made, signed with the lasting key, and destroyed when nothing that they open is open.

A key that no longer exists opens nothing that was recorded. Its file is overwritten and removed; a disk that keeps
older versions of a file (a snapshot, a backup, some flash storage) keeps the key with them, so the folder belongs on a
volume that is not copied.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hanse_fabric.durable import sync, sync_folder, write_all
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.identity.sealing import SealingKey
from hanse_fabric.messages.masking import SeedKey
from hanse_privacy.compensators.keys import signed_key

_SUFFIX = ".pem"


class RotatingKeys:
    """The keys in a folder, which replicas of one machine may share. Methods block.

    A file is named after the last moment at which seeds are sealed to its key (milliseconds) and its public half.

    Args:
        owner: the lasting key, which signs them.
        used: for how long seeds are sealed to a key, at most.
        kept: for how long after that they can be opened: longer than any task that it was announced for stays open.

    Raises:
        HanseError: INVALID_INPUT for a duration that is not positive.
    """

    def __init__(self, folder: Path, owner: SigningKey, *, used: timedelta, kept: timedelta) -> None:
        for name, span in (("used", used), ("kept", kept)):
            if span <= timedelta(0):
                raise invalid(name, str(span), "a duration above 0")
        self._folder, self._owner, self._used, self._kept = folder, owner, used, kept
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def present(self, now: datetime) -> SeedKey:
        """The key that seeds are to be sealed to now, made where there is none that lasts for half its time.

        Those whose time is over are destroyed.
        """
        self.destroy(now)
        lasting = [(until, public, path) for until, public, path in self._keys() if until - now > self._used / 2]
        if lasting:
            until, public, _ = max(lasting)
            return signed_key(self._owner, public, until)
        key, until = SealingKey.create(), (now + self._used).replace(microsecond=0)
        key.save(self._folder / f"{_milliseconds(until)}-{key.public_bytes.hex()}{_SUFFIX}")
        return signed_key(self._owner, key.public_bytes, until)

    def private(self, public: bytes, now: datetime) -> bytes:
        """The private half, 32 bytes, of one of the keys.

        Raises:
            HanseError: GONE where it is destroyed, or was never here.
        """
        self.destroy(now)
        for _, held, path in self._keys():
            if held == public:
                return SealingKey.load(path).private_bytes
        raise HanseError(
            ErrorCode.GONE, "the key that these seeds are sealed to does not exist any more",
            hint="run it again; HANSE_COMPENSATOR_KEPT_HOURS must be longer than the deadline of any step",
        )  # fmt: skip

    def destroy(self, now: datetime) -> None:
        """Destroy the keys of which nothing is open any more."""
        for until, _, path in self._keys():
            if until + self._kept < now:
                _destroyed(path)

    def _keys(self) -> list[tuple[datetime, bytes, Path]]:
        found = []
        for path in sorted(self._folder.glob(f"*{_SUFFIX}")):
            until, _, public = path.name.removesuffix(_SUFFIX).partition("-")
            found.append((datetime.fromtimestamp(int(until) / 1000, UTC), bytes.fromhex(public), path))
        return found


def _destroyed(path: Path) -> None:
    with suppress(FileNotFoundError):  # by another replica
        descriptor = os.open(path, os.O_WRONLY)
        try:
            write_all(descriptor, bytes(os.fstat(descriptor).st_size))
            sync(descriptor)
        finally:
            os.close(descriptor)
        path.unlink()
        sync_folder(path.parent)


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
