"""The image of a pod's first process, made without a builder, and archives brought into the node's containerd."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from pathlib import Path

from deploy.kube.node_config import PAUSE


def pause_archive(folder: Path) -> Path:
    """Compiles pause.c and packs it as a docker archive of one layer."""
    binary = folder / "pause"
    source = Path(__file__).with_name("pause.c")
    subprocess.run(["cc", "-static", "-Os", "-s", "-o", binary, source], check=True, timeout=60)
    layer = _tar({"pause": (binary.read_bytes(), 0o755)})
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [PAUSE], "Layers": ["layer.tar"]}]
    files = {
        "layer.tar": layer,
        "config.json": json.dumps(config).encode(),
        "manifest.json": json.dumps(manifest).encode(),
    }
    archive = folder / "pause.tar"
    archive.write_bytes(_tar({name: (content, 0o644) for name, content in files.items()}))
    return archive


def load(socket: Path, archive: Path) -> list[str]:
    """Imports a docker or OCI archive for the kubelet; the names that it has then."""
    command = ["ctr", "-a", str(socket), "-n", "k8s.io", "images", "import", "--no-unpack=false", str(archive)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{archive}: {done.stderr[-1000:]}"
    return [line.split()[1] for line in done.stdout.splitlines() if line.startswith("unpacking ")]


def _tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
