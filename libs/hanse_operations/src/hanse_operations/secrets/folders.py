"""Secrets as files: manifests for Kubernetes, or one file for each key."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path

import yaml

from hanse_fabric.durable import write_durably
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.folders import no_address
from hanse_operations.secrets.kubernetes import manifest
from hanse_operations.secrets.writing import Stored


class ManifestFolder:
    """A `Target`: `<prefix>-<name>.yaml` in a folder, readable by its owner alone."""

    def __init__(self, folder: Path, prefix: str, labels: Mapping[str, str], namespace: str = "") -> None:
        self._folder, self._prefix, self._labels, self._namespace = folder, prefix, labels, namespace

    def read(self, name: str) -> Stored | None:
        path = self._path(name)
        if not path.exists():
            return None
        text = path.read_text()
        try:
            body = yaml.safe_load(text)
            data = {key: base64.b64decode(value) for key, value in body["data"].items()}
        except (yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError):
            raise HanseError(ErrorCode.INVALID_INPUT, f"{path}: this is no manifest of a Secret with data") from None
        return Stored(data, hashlib.sha256(text.encode()).hexdigest())

    def create(self, name: str, data: Mapping[str, bytes]) -> None:
        _folder(self._folder)
        body = manifest(self._prefix, name, data, self._labels)
        if self._namespace:
            body["metadata"]["namespace"] = self._namespace
        write_durably(self._path(name), yaml.safe_dump(body, sort_keys=False))

    def change(self, name: str, data: Mapping[str, bytes], version: str) -> None:
        before = self.read(name)
        if before is None or before.version != version:
            raise HanseError(ErrorCode.CONFLICT, f"{self._path(name)}: it changed meanwhile")
        self.create(name, {**before.data, **data})

    def remove(self, name: str) -> bool:
        return _remove(self._path(name))

    def _path(self, name: str) -> Path:
        return self._folder / f"{self._prefix}-{name}.yaml"


class FileFolder:
    """A `Target`: a folder for each secret and a file for each of its keys, as a volume of Kubernetes shows them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str) -> Stored | None:
        folder = self._folder / name
        if not folder.is_dir():
            return None
        data = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
        digest = hashlib.sha256(repr(sorted(data.items())).encode()).hexdigest()
        return Stored(data, digest)

    def create(self, name: str, data: Mapping[str, bytes]) -> None:
        _folder(self._folder)
        folder = self._folder / name
        _folder(folder)
        for key, value in data.items():
            write_durably(folder / key, value.decode())

    def change(self, name: str, data: Mapping[str, bytes], version: str) -> None:
        before = self.read(name)
        if before is None or before.version != version:
            raise HanseError(ErrorCode.CONFLICT, f"{self._folder / name}: it changed meanwhile")
        self.create(name, data)

    def remove(self, name: str) -> bool:
        folder = self._folder / name
        if not folder.is_dir():
            return False
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        return True


def _folder(folder: Path) -> None:
    no_address(folder, "--out, --files")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"{folder}: {error.strerror}") from None


def _remove(path: Path) -> bool:
    if not path.exists():
        return False
    path.unlink()
    return True
