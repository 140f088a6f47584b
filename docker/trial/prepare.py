"""First step of the trial: keys for everyone, each into a volume of their own, and data for two sites.

Runs as root in a container without network, because new volumes are root's; what it makes belongs to the services'
user. A second run keeps what is there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

KEYS = Path("/keys")
OUT = Path("/out")
OWNER = 65532
SITES = ("north", "south")
FEATURES, CLASSES, EXAMPLES = 8, 3, 600
FILES = {
    "coordinator": (
        "authority/account.pub",
        "authority/region-hub.pub",
        "authority/region-hub-signer.seed",
        "authority/signer.seed",
        "authority/system.seed",
        "operator-key/api_key",
    ),
    "aggregator": (),
    "compensator": ("compensator-key/compensator.pem",),
    "model-registry": ("registry-key/registry.pem",),
    "console": (),
    "provisioner": (),
    "nats": ("nats-accounts/accounts.conf",),
    "store": ("store-server/s3.json",),
    "owner": ("operator-key/api_key",),
}
"""Whose volume gets which secrets, beside credentials for the bus and the store of the same name."""
STORE = {"provisioner": "admin"}
PROXY = ("coordinator", "console")
"""Who has the secret by which the console is believed who asks through it."""


def secrets() -> None:
    """Make all secrets once, and hand each service its own."""
    command = (sys.executable, "-m", "hanse_operations", "secrets", "--name", "hanse", "--files", str(KEYS))
    subprocess.run((*command, "--store-server", "--compensator"), check=True)
    for name, files in FILES.items():
        folder = OUT / name
        for file in files:
            # Folders where a service reads a folder; else the file beside the others.
            target = folder / (file if file.startswith("authority/") else Path(file).name)
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(KEYS / file, target)
        credentials = KEYS / f"bus-{name}" / "bus.creds"
        if credentials.exists():
            shutil.copyfile(credentials, folder / "bus.creds")
        store = KEYS / f"store-{STORE.get(name, name)}"
        keys = {f"store_{key}": (store / key).read_text() for key in ("access_key", "secret_key") if store.exists()}
        if name in PROXY:
            keys["proxy_secret"] = (KEYS / "proxy-secret" / "proxy_secret").read_text()
        if keys:
            (folder / "config.yaml").write_text(json.dumps(keys))


def examples(site: str) -> None:
    """Points around three centres; the sites have the classes in other shares."""
    centres = np.random.default_rng(0).normal(0, 1, (CLASSES, FEATURES))
    for part in ("train", "test"):
        path = OUT / f"data-{site}" / f"{part}.npz"
        if path.exists():
            continue
        source = np.random.default_rng([SITES.index(site), len(part)])
        shares = np.roll((0.6, 0.3, 0.1), SITES.index(site))
        y = source.choice(CLASSES, EXAMPLES if part == "train" else EXAMPLES // 4, p=shares)
        x = centres[y] + source.normal(0, 0.7, (len(y), FEATURES))
        np.savez(path, x=x.astype(np.float32), y=y.astype(np.int64))


def main() -> int:
    """See the module."""
    os.umask(0o077)
    secrets()
    for site in SITES:
        examples(site)
    for folder in sorted(OUT.iterdir()):
        for path in (folder, *folder.rglob("*")):
            os.chown(path, OWNER, OWNER)
    return 0


if __name__ == "__main__":
    sys.exit(main())
