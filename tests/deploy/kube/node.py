"""A real node beside a control plane: containerd, kubelet, kube-proxy, a DNS of the cluster, local volumes.

Needs root, and Debian's containerd, runc, containernetworking-plugins and iptables. The node's address is that of the
bridge of its pods, so that nothing here listens outside the machine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from deploy.kube import images, node_config, processes
from deploy.kube.control_plane import SERVICES, ControlPlane
from deploy.kube.node_clean import clean
from hanse_operations.servers.program import free_ports

PROGRAMS = ("containerd", "ctr", "runc", "iptables", "ip", "cc")
PACKAGES = "containerd runc containernetworking-plugins iptables iproute2 gcc libc6-dev"
VOLUMES = 24
_NAMES = ("kube-proxy", "kubelet", "dns", "containerd")  # in the order in which they stop


def missing_programs() -> str | None:
    """Why there can be no node on this machine; None when there can."""
    if os.geteuid() != 0:
        return "a node needs root"
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    if absent or not Path("/usr/lib/cni/bridge").exists():
        names = ", ".join(absent) or "/usr/lib/cni"
        return f"{names}: not installed (apt-get install {PACKAGES})"
    return None


class Node:
    """The node of a control plane whose folder is `folder/control-plane`."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self.folder = folder.absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.cluster = ControlPlane(binaries, self.folder / "control-plane", address=node_config.NODE_ADDRESS)
        self.socket = self.folder / "containerd.sock"
        self._binaries = binaries

    def start(self) -> None:
        """Returns when the node is ready and can be given pods."""
        self._make_bridge()
        self.cluster.start()
        self._write_configuration()
        processes.start(self.folder, "containerd", ["containerd", "--config", self.folder / "containerd.toml"])
        self._await("containerd", lambda: self._ctr("version"))
        images.load(self.socket, images.pause_archive(self.folder))
        self._start_kubelet()
        proxy = [self._binaries / "kube-proxy", f"--config={self.folder / 'proxy.json'}"]
        processes.start(self.folder, "kube-proxy", proxy)
        place = (self.cluster.folder, node_config.NODE_ADDRESS, str(node_config.DNS_PORT))
        dns = [sys.executable, "-m", "deploy.kube.dns", *place]
        processes.start(self.folder, "dns", dns, env={"PYTHONPATH": str(Path(__file__).parents[2])})
        self.cluster.kubectl("apply", "-f", "-", text=node_config.dns_objects())
        self.add_volumes(VOLUMES)
        self._await("kube-proxy", self._routes)
        self._await("kubelet", self._ready)

    def load(self, archive: Path) -> list[str]:
        """Brings an image archive to the node; the names of its images."""
        return images.load(self.socket, archive)

    def add_volumes(self, count: int, first: int = 0) -> None:
        items = []
        for number in range(first, first + count):
            path = self.folder / "volumes" / str(number)
            path.mkdir(parents=True, exist_ok=True)
            items.append(node_config.volume(number, path))
        self.cluster.kubectl("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))

    def stop(self) -> None:
        """Removes all pods, ends all programs, takes back mounts, links, rules and cgroups; logs and volumes stay."""
        if processes.running(self.cluster.folder, "apiserver") and processes.running(self.folder, "kubelet"):
            everywhere = ("--all", "--all-namespaces", "--timeout=60s")
            owners = "deployments,statefulsets,daemonsets,jobs"
            self.cluster.kubectl("delete", owners, *everywhere, "--cascade=foreground", check=False)
            self.cluster.kubectl("delete", "pods", *everywhere, "--grace-period=5", check=False)
        for name in _NAMES[:-1]:
            processes.stop(self.folder, name)
        clean(self.folder, self.socket)
        processes.stop(self.folder, "containerd")
        self.cluster.stop()

    def _make_bridge(self) -> None:
        bridge = node_config.BRIDGE
        if not Path(f"/sys/class/net/{bridge}").exists():
            _ip("link", "add", bridge, "type", "bridge")
            _ip("addr", "add", f"{node_config.NODE_ADDRESS}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        # Before kube-proxy has its rules, and for a service without pods: packets for services stay on this machine.
        _ip("route", "replace", SERVICES, "dev", bridge)

    def _write_configuration(self) -> None:
        (self.folder / "cni").mkdir(exist_ok=True)
        files = {
            "containerd.toml": node_config.containerd(self.folder),
            "cni/10-hanse.conflist": node_config.network(self.folder),
            "kubelet.json": node_config.kubelet(),
            "proxy.json": node_config.proxy(self.cluster.kubeconfig, *free_ports(2)),
        }
        for name, content in files.items():
            (self.folder / name).write_text(content)

    def _start_kubelet(self) -> None:
        flags = {
            "config": self.folder / "kubelet.json",
            "kubeconfig": self.cluster.kubeconfig,
            "root-dir": self.folder / "kubelet",
            "cert-dir": self.folder / "kubelet-certs",
            "container-runtime": "remote",
            "container-runtime-endpoint": f"unix://{self.socket}",
            "node-ip": node_config.NODE_ADDRESS,
            "hostname-override": node_config.NODE,
        }
        argv = [self._binaries / "kubelet", *(f"--{name}={value}" for name, value in flags.items())]
        # Without the variable this kubelet asks a link-local address whether it runs in a cloud.
        processes.start(self.folder, "kubelet", argv, env={"AWS_EC2_METADATA_DISABLED": "true"})

    def _routes(self) -> bool:
        """Whether the cluster's DNS is behind its service's address: then kube-proxy has written its rules."""
        rules = subprocess.run(["iptables", "-w", "-t", "nat", "-S"], capture_output=True, text=True, timeout=60)
        return f"--to-destination {node_config.NODE_ADDRESS}:{node_config.DNS_PORT}" in rules.stdout

    def _ctr(self, *words: str) -> bool:
        command = ["ctr", "-a", str(self.socket), *words]
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0

    def _ready(self) -> bool:
        node = self.cluster.api().find(f"/api/v1/nodes/{node_config.NODE}") or {}
        conditions = {one["type"]: one["status"] for one in node.get("status", {}).get("conditions", ())}
        return conditions.get("Ready") == "True" and not node.get("spec", {}).get("taints")

    def _await(self, name: str, ready: object, seconds: float = 180) -> None:
        assert callable(ready)
        end = time.monotonic() + seconds
        while not ready():
            assert processes.running(self.folder, name), f"{name} ended:\n{processes.log_tail(self.folder, name)}"
            assert time.monotonic() < end, (
                f"{name} is not ready after {seconds:.0f} s:\n{processes.log_tail(self.folder, name)}"
            )
            time.sleep(0.2)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=30)
