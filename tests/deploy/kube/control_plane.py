"""A real Kubernetes control plane in a folder: etcd, API server, controller manager, scheduler.

Without a node, pods stay pending; objects are validated, stored, defaulted and removed as in any cluster.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from deploy import kube_tools
from deploy.kube import processes
from deploy.kube.api import KubeApi
from deploy.kube.certs import write_certificates
from hanse_operations.servers.program import free_ports

PODS, SERVICES = "10.244.0.0/16", "10.96.0.0/16"
_NAMES = ("scheduler", "controller-manager", "apiserver", "etcd")  # in the order in which they stop
_START_S = 120.0


class ControlPlane:
    """A control plane whose state lies in `folder`; `start` returns when the API server is ready.

    Args:
        address: where the API server listens; pods reach it there, so with a node it must be one of the node's.
        tied: the servers end with the thread that starts them.
    """

    def __init__(self, binaries: Path, folder: Path, *, address: str = "127.0.0.1", tied: bool = False) -> None:
        self.binaries, self.folder, self.address, self._tied = binaries, folder, address, tied
        self.kubeconfig = folder / "admin.conf"
        self.certs = folder / "certs"
        ports = folder / "ports.json"
        if not ports.exists():
            folder.mkdir(parents=True, exist_ok=True)
            ports.write_text(json.dumps(free_ports(5)))
        self._etcd_port, self._peer_port, self.port, self._manager_port, self._scheduler_port = json.loads(
            ports.read_text()
        )

    @property
    def url(self) -> str:
        return f"https://{self.address}:{self.port}"

    def start(self) -> None:
        if not self.kubeconfig.exists():
            write_certificates(self.certs, self.address)
            self._write_kubeconfig()
        etcd, peers = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        flags: dict[str, object] = {
            "data-dir": self.folder / "etcd",
            "listen-client-urls": etcd,
            "advertise-client-urls": etcd,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"default={peers}",
            "unsafe-no-fsync": "true",
        }
        self._start("etcd", "etcd", flags)
        self._start("apiserver", "kube-apiserver", self._server_flags(etcd))
        self._await_ready()
        client = {"kubeconfig": self.kubeconfig, "port": 0, "bind-address": "127.0.0.1", "leader-elect": "false"}
        flags = {
            "service-account-private-key-file": self.certs / "sa.key",
            "root-ca-file": self.certs / "ca.crt",
            "use-service-account-credentials": "true",
            "secure-port": self._manager_port,
            "cert-dir": self.certs / "controller-manager",
            "cluster-cidr": PODS,
            "allocate-node-cidrs": "true",
        }
        self._start("controller-manager", "kube-controller-manager", {**client, **flags})
        flags = {"secure-port": self._scheduler_port, "cert-dir": self.certs / "scheduler"}
        self._start("scheduler", "kube-scheduler", {**client, **flags})

    def stop(self) -> None:
        for name in _NAMES:
            processes.stop(self.folder, name)

    def api(self) -> KubeApi:
        """Calls as the cluster's administrator."""
        return KubeApi(self.address, self.port, self.certs)

    def run(
        self, program: str, *words: str | Path, check: bool = True, timeout: float = 300, text: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs helm3, helm4 or kubectl on this cluster, with its own folders for configuration and caches.

        Args:
            check: fail, with what it printed, where it does not succeed.
            text: its standard input.
        """
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "KUBECONFIG": str(self.kubeconfig)}
        argv = [str(kube_tools.find_tool(program)), *map(str, words)]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=timeout, input=text, check=False)
        assert not check or done.returncode == 0, (
            f"{' '.join(argv)}\nexit status {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        )
        return done

    def kubectl(self, *words: str | Path, check: bool = True, timeout: float = 300, text: str | None = None) -> str:
        """What kubectl prints."""
        return self.run("kubectl", *words, check=check, timeout=timeout, text=text).stdout

    def collect(self, folder: Path) -> None:
        """Writes events, pods and the logs of all containers into `folder`; what cannot be had is left out."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "events.txt").write_text(self.kubectl("get", "events", "-A", "--sort-by=.lastTimestamp", check=False))
        (folder / "pods.yaml").write_text(self.kubectl("get", "pods", "-A", "-o", "yaml", check=False))
        names = "{range .items[*]}{.metadata.namespace} {.metadata.name}{'\\n'}{end}".replace("'", '"')
        for line in self.kubectl("get", "pods", "-A", "-o", f"jsonpath={names}", check=False).splitlines():
            namespace, pod = line.split()
            for previous in ("false", "true"):
                words = (
                    "logs",
                    pod,
                    "--namespace",
                    namespace,
                    "--all-containers",
                    "--prefix",
                    f"--previous={previous}",
                )
                said = self.kubectl(*words, check=False)
                if said:
                    (folder / f"{namespace}.{pod}{'.before' * (previous == 'true')}.log").write_text(said)

    def _server_flags(self, etcd: str) -> dict[str, object]:
        return {
            "etcd-servers": etcd,
            "bind-address": self.address,
            "secure-port": self.port,
            "cert-dir": self.certs,
            "tls-cert-file": self.certs / "apiserver.crt",
            "tls-private-key-file": self.certs / "apiserver.key",
            "client-ca-file": self.certs / "ca.crt",
            "service-account-key-file": self.certs / "sa.key",
            "service-account-signing-key-file": self.certs / "sa.key",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-cluster-ip-range": SERVICES,
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction",
            "allow-privileged": "true",
            "kubelet-preferred-address-types": "InternalIP",
        }

    def _start(self, name: str, binary: str, flags: Mapping[str, object]) -> None:
        argv = [self.binaries / binary, *(f"--{flag}={value}" for flag, value in flags.items())]
        processes.start(self.folder, name, argv, tied=self._tied)

    def _await_ready(self) -> None:
        api, end = self.api(), time.monotonic() + _START_S
        while time.monotonic() < end:
            for name in ("etcd", "apiserver"):
                assert processes.running(self.folder, name), f"{name} ended:\n{processes.log_tail(self.folder, name)}"
            try:
                if api.get("/readyz")[0] == 200:
                    return
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.1)
        raise AssertionError(
            f"the API server is not ready after {_START_S:.0f} s:\n{processes.log_tail(self.folder, 'apiserver')}"
        )

    def _write_kubeconfig(self) -> None:
        cluster = {"server": self.url, "certificate-authority": str(self.certs / "ca.crt")}
        user = {"client-certificate": str(self.certs / "admin.crt"), "client-key": str(self.certs / "admin.key")}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "admin", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            "current-context": "test",
        }
        self.kubeconfig.write_text(json.dumps(config, indent=1))  # JSON is YAML
