"""Who of the hub's pods speaks to whom: derived from the code, to compare with the NetworkPolicies of the chart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from deploy.charts import Manifest, of_kind
from hanse_fabric.subjects import SUBJECTS, Role
from hanse_operations.servers.seaweedfs import IDENTITIES

BUS, STORE, API, CLUSTER = 4222, 8333, 8080, 6222
DNS = 53

# The pods in which the roles of the installation work; services' pods are called as their roles are.
WORKS_IN = {Role.PROVISIONER: "state", Role.BACKUP: "backup", Role.RESTORER: "restore"}
STORE_WORKS_IN = {"admin": ["state"], "backup": ["backup", "restore"]}


class Arrow(NamedTuple):
    """A connection that `source` opens to `target`; both are components of the chart."""

    source: str
    target: str
    port: int


def arrows_of_code() -> set[Arrow]:
    """Every role with a right on the bus speaks to it, every identity of the store to that, the tester to all doors."""
    roles = {role for subject in SUBJECTS for role in subject.rights} | set(WORKS_IN)
    on_bus = {WORKS_IN.get(role, role.value) for role in roles - {Role.PARTICIPANT}}
    at_store = {component for name in IDENTITIES for component in STORE_WORKS_IN.get(name, [name])}
    found = {Arrow(one, "nats", BUS) for one in on_bus} | {Arrow(one, "store", STORE) for one in at_store}
    found |= {Arrow("nats", "nats", CLUSTER)}  # the servers of the bus copy streams among each other
    # `helm test` plays the owner and sites: through the API, and with what a site is given.
    found |= {Arrow("console", "coordinator", API)}  # the contract of its imports leaves it nothing else
    return found | {Arrow("test", "coordinator", API), Arrow("test", "nats", BUS), Arrow("test", "store", STORE)}


def policies(manifests: Sequence[Manifest]) -> list[Manifest]:
    return list(of_kind(manifests, "NetworkPolicy").values())


def arrows_out(policies: Sequence[Mapping[str, Any]]) -> set[Arrow]:
    """What egress allows between components; DNS and addresses outside are left out."""
    return {Arrow(here, there, port) for here, there, port in _ends(policies, "egress", "to") if port != DNS}


def arrows_in(policies: Sequence[Mapping[str, Any]]) -> set[Arrow]:
    """What ingress allows between components; doors for others are left out."""
    return {Arrow(there, here, port) for here, there, port in _ends(policies, "ingress", "from")}


def chosen(policy: Mapping[str, Any]) -> list[str]:
    """The components that a policy is about; an empty list: all pods of the release."""
    selector = policy["spec"]["podSelector"]
    one = selector.get("matchLabels", {}).get("app.kubernetes.io/component")
    several = [value for rule in selector.get("matchExpressions", []) for value in rule["values"]]
    return [one] if one else several


def _ends(policies: Sequence[Mapping[str, Any]], way: str, peers: str) -> Iterator[tuple[str, str, int]]:
    for policy in policies:
        for rule in policy["spec"].get(way, []):
            for peer in rule.get(peers, []):
                labels = peer.get("podSelector", {}).get("matchLabels", {})
                there = labels.get("app.kubernetes.io/component")
                if there is not None and "namespaceSelector" not in peer:
                    for here in chosen(policy):
                        for port in rule["ports"]:
                            yield here, there, port["port"]
