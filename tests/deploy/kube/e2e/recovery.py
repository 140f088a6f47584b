"""A disaster and what docs/operator.md says then: a backup in the middle of a run, NATS and Secrets lost, all back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deploy.kube.e2e import runs
from deploy.kube.e2e.release import WAIT_S, Release

KEPT = ("authority", "registry-key", "operator-key")
"""Secrets that the operator keeps in a safe place."""
NEWEST: Mapping[str, Any] = {"backup": {"restore": {"from": "newest"}}}
STOPPED: Mapping[str, Any] = {
    "coordinator": {"replicas": 0},
    "console": {"replicas": 0},
    "aggregator": {"replicas": 0},
    "modelRegistry": {"replicas": 0},
    "compensator": {"enabled": False},
}
"""No service that writes."""
_TEMPLATE = "templates/backup.yaml"


def back_up(hub: Release, chart: Path, values: list[Path]) -> str:
    """A backup now; what it says.

    As `kubectl create job --from=cronjob/...` does, which needs a newer server than that of the tests: the scheduled
    job's template makes a job.
    """
    (scheduled,) = hub.template(chart, *values, {"backup": {"enabled": True}}, show=_TEMPLATE)
    account = hub.template(chart, *values, {"backup": {"enabled": True}}, show="templates/serviceaccounts.yaml")
    template = scheduled["spec"]["jobTemplate"]
    metadata = {**template["metadata"], "name": f"{hub.name}-backup-now"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template["spec"]}
    mine = [one for one in account if one["metadata"]["labels"]["app.kubernetes.io/component"] == "backup"]
    _apply(hub, [*mine, job])
    said = _finished(hub, "backup")
    hub.kubectl("delete", "job,serviceaccount", "-l", "app.kubernetes.io/component=backup")
    return said


def lose(hub: Release, kept: Path) -> list[str]:
    """Uninstalls the hub and removes the volumes of NATS and the compensator; the names of the volumes that are left.

    Args:
        kept: file for the Secrets that the operator kept.
    """
    kept.touch(mode=0o600)
    kept.write_text(hub.kubectl("get", "secret", *(f"{hub.name}-{name}" for name in KEPT), "-o", "yaml"))
    hub.uninstall()
    for component in ("nats", "compensator"):
        hub.kubectl("delete", "persistentvolumeclaim", "-l", f"app.kubernetes.io/component={component}")
    return hub.left()


def bring_back(hub: Release, chart: Path, values: list[Path], kept: Path) -> str:
    """The steps of the docs, in their order; what the restoring job says."""
    hub.kubectl("apply", "-f", kept)
    hub.install(chart, *values, STOPPED)
    _apply(hub, hub.template(chart, *values, NEWEST, show=_TEMPLATE))
    said = _finished(hub, "restore")
    hub.upgrade(chart, *values)
    hub.kubectl("delete", "job", "-l", "app.kubernetes.io/component=restore")
    return said


def _apply(hub: Release, items: list[dict[str, Any]]) -> None:
    hub.kubectl("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def _finished(hub: Release, component: str) -> str:
    """Waits for a component's only job; its log."""
    label = f"app.kubernetes.io/component={component}"

    def ended() -> bool:
        (job,) = json.loads(hub.kubectl("get", "jobs", "-l", label, "-o", "json"))["items"]
        return any(one["status"] == "True" for one in job["status"].get("conditions", ()))

    runs.until(ended, f"the {component} job has ended, within {WAIT_S} s")
    said = hub.kubectl("logs", "-l", label, "--tail=-1")
    (job,) = json.loads(hub.kubectl("get", "jobs", "-l", label, "-o", "json"))["items"]
    assert job["status"].get("succeeded"), f"the {component} job failed:\n{said}"
    return said
