"""The embedded hub's folder: one hub at a time, the same ports and secrets at every start."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hanse_fabric.durable import try_lock, write_durably
from hanse_fabric.errors import ErrorCode, HanseError, invalid

PORTS = ("http", "bus", "store")
PORT_OPTIONS = {
    "http": "--port",
    "public bus": "--bus-port",
    "public store": "--store-port",
    "console": "--console-port",
}
"""By which `hanse up` is told a port, by what the port is for."""
_LOOKED_AT_S = 0.02
"""Longer than somebody who looks whether a hub runs holds its lock."""


@dataclass(frozen=True, slots=True)
class StateFolder:
    """Paths in the hub's folder."""

    root: Path

    @property
    def key_file(self) -> Path:
        """The operator's API key, made at the first start, readable by its owner alone."""
        return self.root / "operator.key"

    @property
    def authority(self) -> Path:
        """The folder of the bus's keys and credentials."""
        return self.root / "bus-authority"

    @property
    def compensator_key(self) -> Path:
        """The key that sites seal their seeds to: beside the hub only here, where all parties are one machine."""
        return self.root / "compensator.key"

    def identity(self, name: str) -> Path:
        """The lasting key of one of several compensators, beside which its memory and its keys of some hours are."""
        return self.root / name / "identity.key"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder; the lock ends with the process, however it ends.

        Raises:
            HanseError: LOCKED when another hub holds it; INVALID_INPUT where nothing can be written, or where others
                have a hand in the folder or know its key.
        """
        descriptor = self._lock_file()
        try:
            if not try_lock(descriptor) and not _try_again(descriptor):
                holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
                raise HanseError(
                    ErrorCode.LOCKED,
                    f"state folder {self.root}: another hub (process {holder}) runs on it",
                    hint="stop that one, or give this one a folder of its own with --state",
                )
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
            yield
        finally:
            os.close(descriptor)

    def check_own(self) -> None:
        """See that the folder is this user's, and what names its hub, and that nobody else can change these, read the
        key, or open the lock: whoever can, even to read it, can hold it in a hub's place.

        Raises:
            HanseError: INVALID_INPUT; the message names what is not so.
        """
        found = self.root.stat()
        if found.st_uid != os.geteuid():
            raise HanseError(
                ErrorCode.INVALID_INPUT,
                f"state folder {self.root}: it belongs to user {found.st_uid}, and you are user {os.geteuid()}",
                hint="its owner can start and use the hub; name another hub with its address and your key for it",
            )
        for path, others in ((self.root, stat.S_IWGRP | stat.S_IWOTH), (self.key_file, stat.S_IRWXG | stat.S_IRWXO)):
            if not os.path.lexists(path):
                continue
            if path.is_symlink() or path.stat().st_uid != found.st_uid or path.stat().st_mode & others:
                done = "read or change" if path == self.key_file else "change"
                raise HanseError(
                    ErrorCode.INVALID_INPUT,
                    f"{path}: others can {done} it, so no hub of yours has left it so",
                    hint="if it came with files of somebody else (a clone, an archive), its keys are theirs: remove "
                    f"{self.root}; if it is yours, chmod 700 {self.root} and chmod 600 {self.key_file}",
                )  # fmt: skip
        self._check_files()

    def _check_files(self) -> None:
        """Of those that say where the hub is, and that it runs."""
        for name in ("lock", "address.json", "ports.json"):
            path = self.root / name
            try:
                found = path.lstat()
            except FileNotFoundError:
                continue
            others = stat.S_IRWXG | stat.S_IRWXO if name == "lock" else stat.S_IWGRP | stat.S_IWOTH
            if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & others:
                continue
            done = "open or change" if name == "lock" else "change"
            raise HanseError(
                ErrorCode.INVALID_INPUT,
                f"{path}: it is no file of yours that nobody else can {done}, so no hub of yours has left it so",
                hint="if it came with files of somebody else (a clone, an archive), its keys are theirs: remove "
                f"{self.root}; if it is yours, stop the hub and remove the file: the next start makes it anew",
            )

    def is_held(self) -> bool:
        """Whether a hub runs on this folder, on this machine. What was copied here, with whatever files, is not held.

        Raises:
            HanseError: UNAVAILABLE on a system without locks of files.
        """
        try:
            # Not by a link: it could lead to the lock of another hub.
            descriptor = os.open(self.root / "lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            return os.fstat(descriptor).st_nlink == 1 and not try_lock(descriptor)
        finally:
            os.close(descriptor)

    def _lock_file(self) -> int:
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.check_own()
            return os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except (FileExistsError, NotADirectoryError):
            there = next(path for path in (self.root, *self.root.parents) if path.exists())
            raise invalid("--state", str(self.root), "a folder", hint=f"{there} is a file") from None
        except OSError as error:
            said = (error.strerror or str(error)).lower()
            raise invalid(
                "--state", str(self.root), f"a folder that this user can write to: {said}",
                hint="give the hub a folder of its own with --state",
            ) from None  # fmt: skip

    def ports(
        self, http_port: int | None, further: Sequence[str] = (), chosen: Mapping[str, int] | None = None
    ) -> dict[str, int]:
        """The hub's ports, and `further` ones by name: free ones at the first start, remembered for the next ones.
        Those that are `chosen` (and `http_port`) win over remembered ones, and are remembered.

        Raises:
            HanseError: INVALID_INPUT where one port is chosen for two uses.
        """
        remembered, names = self._remembered(), (*PORTS, *further)
        wanted = {**({"http": http_port} if http_port else {}), **(chosen or {})}
        taken = dict[int, str]()
        for name, port in wanted.items():
            if port in taken:
                raise invalid(PORT_OPTIONS[name], str(port), f"a port of its own: {PORT_OPTIONS[taken[port]]} has it")
            taken[port] = name
        from hanse_operations.servers.program import free_ports  # not there beside a client alone

        others = (port for port in free_ports(len(names) + len(wanted), shifted=10_000) if port not in taken)
        fresh = dict(zip(names, others, strict=False))
        kept = {name: port for name, port in remembered.items() if port not in taken}
        ports = {name: wanted.get(name) or kept.get(name) or fresh[name] for name in names}
        write_durably(self.root / "ports.json", json.dumps({**kept, **ports}, indent=1))
        return ports

    def api_key(self) -> str | None:
        """The operator's key, if the hub was ever started."""
        return self.key_file.read_text().strip() if self.key_file.exists() else None

    def remember_address(self, url: str, ca: Path | None) -> None:
        """Say where the hub is from now on, and which authority signed for it; None: one that the system knows."""
        write_durably(self.root / "address.json", json.dumps({"url": url, "ca": ca and str(ca)}))

    def url(self) -> str | None:
        """The hub's address, if it was ever started."""
        remembered = self._remembered()
        if not remembered:
            return None
        return self._address().get("url") or f"http://127.0.0.1:{remembered['http']}"

    def ca(self) -> Path | None:
        """The authority of the hub's certificate, where it is not one that the system knows."""
        named = self._address().get("ca")
        return Path(named) if named else None

    def _address(self) -> dict[str, str]:
        path = self.root / "address.json"
        try:
            return dict(json.loads(path.read_text())) if path.exists() else {}
        except (ValueError, TypeError):
            raise HanseError(
                ErrorCode.INVALID_INPUT, f"{path}: no address", hint="remove it; the hub's next start writes it anew"
            ) from None

    def _remembered(self) -> dict[str, int]:
        path = self.root / "ports.json"
        if not path.exists():
            return {}
        try:
            read = {str(name): int(port) for name, port in json.loads(path.read_text()).items()}
        except (ValueError, TypeError, AttributeError):
            read = {}
        if "http" not in read:
            raise HanseError(
                ErrorCode.INVALID_INPUT, f"{path}: no list of ports", hint="remove it, and new ones are chosen"
            )
        return read


def _try_again(descriptor: int) -> bool:
    """Somebody may have looked at that moment whether a hub runs."""
    time.sleep(_LOOKED_AT_S)
    return try_lock(descriptor)
