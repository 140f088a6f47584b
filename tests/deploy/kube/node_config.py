"""Configuration of a node's programs, as the versions of Debian bookworm and Kubernetes 1.20 read them."""

from __future__ import annotations

import json
from pathlib import Path

BRIDGE = "hanse-pods"
POD_SUBNET = "10.244.0.0/24"
NODE_ADDRESS = "10.244.0.1"  # of the bridge: nothing listens outside this machine
DNS_SERVICE = "10.96.0.10"
DNS_PORT = 5300
NODE = "node1"
PAUSE = "localhost/hanse-pause:1"


def containerd(folder: Path) -> str:
    """containerd.toml: sockets and data in `folder`; cgroupfs, and scores of the OOM killer that need no privilege."""
    cri = "plugins.'io.containerd.grpc.v1.cri'"
    off = [f"io.containerd.snapshotter.v1.{name}" for name in ("aufs", "btrfs", "zfs", "devmapper")]
    return f"""version = 2
root = '{folder}/containerd'
state = '{folder}/containerd-run'
disabled_plugins = {json.dumps(off)}
[grpc]
address = '{folder}/containerd.sock'
[{cri}]
sandbox_image = '{PAUSE}'
restrict_oom_score_adj = true
[{cri}.cni]
bin_dir = '/usr/lib/cni'
conf_dir = '{folder}/cni'
[{cri}.containerd]
snapshotter = 'overlayfs'
default_runtime_name = 'runc'
[{cri}.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
[{cri}.containerd.runtimes.runc.options]
SystemdCgroup = false
"""


def network(folder: Path) -> str:
    """The CNI chain: a bridge, and ports of the host where a pod asks for one."""
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": POD_SUBNET, "gateway": NODE_ADDRESS}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(folder / "ipam"),
    }
    bridge = {
        "type": "bridge",
        "bridge": BRIDGE,
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": addresses,
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "0.4.0", "name": "hanse", "plugins": [bridge, ports]})


def kubelet() -> str:
    """Anonymous access is allowed on the bridge's address only, as nobody else is there."""
    return json.dumps(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": NODE_ADDRESS,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "clusterDNS": [DNS_SERVICE],
            "clusterDomain": "cluster.local",
            "failSwapOn": False,
            "oomScoreAdj": 0,
            "podCIDR": POD_SUBNET,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
        }
    )


def proxy(kubeconfig: Path, health_port: int, metrics_port: int) -> str:
    """Without the limits of connection tracking, which a virtual machine may not be allowed to set."""
    return json.dumps(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "bindAddress": "127.0.0.1",
            "healthzBindAddress": f"127.0.0.1:{health_port}",
            "metricsBindAddress": f"127.0.0.1:{metrics_port}",
            "clientConnection": {"kubeconfig": str(kubeconfig)},
            "clusterCIDR": "10.244.0.0/16",
            "mode": "iptables",
            "hostnameOverride": NODE,
            "oomScoreAdj": 0,
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        }
    )


def dns_objects() -> str:
    """The service of the cluster's DNS, which leads to a process of this machine."""
    place = {"name": "kube-dns", "namespace": "kube-system"}
    port = {"name": "dns", "protocol": "UDP"}
    service = {"clusterIP": DNS_SERVICE, "ports": [{**port, "port": 53, "targetPort": DNS_PORT}]}
    subset = {"addresses": [{"ip": NODE_ADDRESS}], "ports": [{**port, "port": DNS_PORT}]}
    items = [
        {"apiVersion": "v1", "kind": "Service", "metadata": place, "spec": service},
        {"apiVersion": "v1", "kind": "Endpoints", "metadata": place, "subsets": [subset]},
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def volume(number: int, path: Path) -> dict[str, object]:
    """A persistent volume of this node, of no storage class. A local one: fsGroup is not applied to hostPath."""
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"local-{number}"},
        "spec": {
            "capacity": {"storage": "100Gi"},
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": str(path)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }
