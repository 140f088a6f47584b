"""Takes back what a node leaves in the kernel: containers, mounts, network namespaces, links, rules, cgroups."""

from __future__ import annotations

import ipaddress
import json
import re
import shutil
import subprocess
from pathlib import Path

from deploy.kube.node_config import BRIDGE, POD_SUBNET

_CHAINS = re.compile(r"^-N ((?:KUBE|CNI)-\S+)", re.MULTILINE)


def clean(folder: Path, socket: Path) -> None:
    """Everything that belongs to the node in `folder`; only chains and cgroups that carry Kubernetes' names besides."""
    _end_containers(socket)
    _unmount(folder)
    _remove_networks()
    _remove_rules()
    subprocess.run(["ip", "link", "del", BRIDGE], capture_output=True, timeout=30, check=False)
    for group in sorted(Path("/sys/fs/cgroup").glob("**/kubepods*/**/"), key=lambda path: -len(path.parts)):
        _remove_group(group)
    for group in Path("/sys/fs/cgroup").glob("**/kubepods*/"):
        _remove_group(group)


def _end_containers(socket: Path) -> None:
    def ctr(*words: str) -> str:
        command = ["ctr", "-a", str(socket), "-n", "k8s.io", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout

    for name in ctr("containers", "ls", "-q").split():
        ctr("tasks", "kill", "--signal", "SIGKILL", "--all", name)
        ctr("tasks", "rm", "--force", name)
        ctr("containers", "rm", name)


def _remove_networks() -> None:
    """The network namespaces of pods, and so their links: those with an address of the pods' network. containerd, which
    knows them, may have been killed."""
    for space in Path("/run/netns").glob("cni-*"):
        shown = subprocess.run(
            ["ip", "-n", space.name, "-4", "-json", "address"], capture_output=True, text=True, timeout=30, check=False
        )
        addresses = {one["local"] for link in json.loads(shown.stdout or "[]") for one in link.get("addr_info", ())}
        if any(ipaddress.ip_address(address) in ipaddress.ip_network(POD_SUBNET) for address in addresses):
            subprocess.run(["ip", "netns", "del", space.name], capture_output=True, timeout=30, check=False)


def _unmount(folder: Path) -> None:
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for path in sorted((path for path in mounts if path.startswith(f"{folder}/")), key=len, reverse=True):
        subprocess.run(["umount", "--lazy", path], capture_output=True, timeout=30, check=False)


def _remove_rules() -> None:
    for tables in ("iptables", "ip6tables"):
        if shutil.which(tables) is None:
            continue
        for table in ("nat", "filter", "mangle"):
            base = [tables, "-w", "-t", table]
            rules = subprocess.run([*base, "-S"], capture_output=True, text=True, timeout=30, check=False).stdout
            chains = _CHAINS.findall(rules)
            for rule in rules.splitlines():
                # A jump from one of the kernel's own chains; those inside go with their chains.
                if rule.startswith("-A") and re.search(r"-j (KUBE|CNI)-", rule) and rule.split()[1] not in chains:
                    words = f"{' '.join(base)} -D {rule[3:]}"
                    subprocess.run(
                        ["sh", "-c", words], capture_output=True, timeout=30, check=False
                    )  # rules are quoted for a shell
            for word in ("-F", "-X"):
                for chain in chains:
                    subprocess.run([*base, word, chain], capture_output=True, timeout=30, check=False)


def _remove_group(group: Path) -> None:
    try:
        group.rmdir()
    except OSError:
        return  # another process is in it, or it went with its parent
