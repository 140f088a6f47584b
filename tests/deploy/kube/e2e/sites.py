"""Sites of the test: shares of scikit-learn's digits on volumes of the node, and what each tells the site's chart."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deploy.kube import node_config
from deploy.kube.e2e.release import Release
from deploy.kube.node import Node
from hanse.hub import Project
from hanse_learning.digits import write_shares

SCHEMA: dict[str, Any] = {
    "kind": "array",
    "shape": [64],
    "task": "classification",
    "classes": 10,
    "minimum": 0,
    "maximum": 1,
}


def write_data(node: Node, namespace: str, sites: list[str]) -> None:
    """A volume with train.npz and test.npz for each site, and the claim `SITE-data` that it is bound to."""
    folder = node.folder / "data"
    write_shares(folder, sites, seed=3)
    items: list[dict[str, Any]] = []
    for site in sites:
        path = node.folder / "site-data" / site
        shutil.copytree(folder / site, path, dirs_exist_ok=True)
        place = {"name": f"{site}-data", "namespace": namespace}
        volume: dict[str, Any] = node_config.volume(0, path)
        volume["metadata"] = {"name": f"data-{namespace}-{site}"}
        volume["spec"] |= {"claimRef": place, "storageClassName": "site-data"}
        claim = {
            "accessModes": ["ReadOnlyMany"],
            "storageClassName": "site-data",
            "resources": {"requests": {"storage": "1Gi"}},
        }
        kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
        items += [volume, {**kind, "metadata": place, "spec": claim}]
    node.cluster.kubectl("create", "namespace", namespace, check=False)
    node.cluster.kubectl("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def values(site: str, url: str, token: str, compensator: str | None) -> Mapping[str, Any]:
    """What a site's operator tells the chart: where the hub is, the token, the data, the compensator to trust."""
    return {
        "hub": {"url": url},
        "join": {"token": token},
        "data": {
            "volumes": [{"name": "site", "existingClaim": f"{site}-data"}],
            "train": "/data/site/train.npz",
            "test": "/data/site/test.npz",
        },
        "policy": {"inline": {"masking": {"compensator": compensator}} if compensator else {}},
    }


def online(project: Project) -> set[str]:
    """The sites that the hub can reach now."""
    return {view.participant for view in project.participants() if view.online}


def release(node: Node, namespace: str, site: str, helm: int) -> Release:
    return Release(node.cluster, site, namespace=namespace, helm=helm)


def outbox(node: Node, namespace: str, site: str) -> Path:
    """The log of all that left the site, on the node's own disk."""
    claims = json.loads(node.cluster.kubectl("--namespace", namespace, "get", "persistentvolumeclaims", "-o", "json"))
    for claim in claims["items"]:
        name = str(claim["metadata"]["name"])
        if site in name and name != f"{site}-data":
            volume = node.cluster.api().find(f"/api/v1/persistentvolumes/{claim['spec']['volumeName']}")
            assert volume is not None
            found = list(Path(volume["spec"]["local"]["path"]).glob("**/outbox.jsonl"))
            if found:
                return found[0]
    raise AssertionError(f"{site}: no volume has its outbox's log")
