"""What keeps the parts of a SeaweedFS to themselves: S3 is the one way in, whoever else is on the machine.

Its filer takes writes over HTTP from everybody who reaches its port, its master removes a whole bucket at a word, and
both listen on the loopback interface, which every user of a machine has. So HTTP is off but for the volumes, which take
what is signed with a key of this process alone; and gRPC is for who has its certificate. All of it is made anew at each
start: nobody else ever needs it.
"""

from __future__ import annotations

import secrets
from datetime import datetime
from pathlib import Path

from hanse_fabric.durable import write_durably
from hanse_operations.secrets.certificates import issue, make_ca

_PARTS = ("master", "volume", "filer", "s3", "admin", "worker", "client")
_SIGNED = ("jwt.signing", "jwt.signing.read", "jwt.filer_signing", "jwt.filer_signing.read")


def shut_inside(folder: Path, now: datetime) -> list[str]:
    """Write keys and certificates to `folder`, readable by its owner alone.

    Returns:
        Arguments of `weed mini` by which it uses them: one to stand before the command, and one behind.
    """
    folder.mkdir(exist_ok=True, mode=0o700)
    ca = make_ca("object store", now)
    pair = issue(ca, ["127.0.0.1"], now)
    places = {name: folder / f"{name}.pem" for name in ("ca", "cert", "key")}
    for place, pem in zip(places.values(), (ca.cert, pair.cert, pair.key), strict=True):
        write_durably(place, pem)
    lines = [f"[{name}]\nkey = '{secrets.token_urlsafe(32)}'" for name in _SIGNED]
    lines.append(f"[grpc]\nca = '{places['ca']}'")
    lines += [f"[grpc.{part}]\ncert = '{places['cert']}'\nkey = '{places['key']}'" for part in _PARTS]
    write_durably(folder / "security.toml", "\n".join(lines).encode())
    return [f"-config_dir={folder}", "-disableHttp"]
