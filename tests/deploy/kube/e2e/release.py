"""A release of a chart on the cluster, as its operator works with it: install, upgrade, roll back, test, uninstall."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from deploy.kube.control_plane import ControlPlane

WAIT_S = 300

# What every namespace has without a release.
_CLUSTERS_OWN = ("serviceaccount/default", "configmap/kube-root-ca.crt", "secret/default-token-")
_PASSING = ("event/", "event.events.k8s.io/", "endpointslice.discovery.k8s.io/", "endpoints/", "lease.coordination")


class Release:
    """The release `name` in the namespace of the same name, or another, by helm 3 or 4."""

    def __init__(self, cluster: ControlPlane, name: str, *, namespace: str | None = None, helm: int = 4) -> None:
        self.cluster, self.name, self.namespace = cluster, name, namespace or name
        self._helm = f"helm{helm}"

    def install(self, chart: Path, *values: Mapping[str, Any] | Path, timeout: float = WAIT_S) -> None:
        """Returns when every pod is ready."""
        self._run("install", self.name, chart, *self._given(values), "--create-namespace", *self._wait(timeout))

    def upgrade(self, chart: Path, *values: Mapping[str, Any] | Path, timeout: float = WAIT_S) -> None:
        self._run("upgrade", self.name, chart, *self._given(values), *self._wait(timeout))

    def rollback(self, revision: int, timeout: float = WAIT_S) -> None:
        self._run("rollback", self.name, str(revision), *self._wait(timeout))

    def test(self, timeout: float = WAIT_S) -> str:
        """`helm test`: what it and its pod say."""
        return self._run("test", self.name, "--logs", f"--timeout={timeout:.0f}s", timeout=timeout + 30)

    def uninstall(self, timeout: float = WAIT_S) -> None:
        self._run("uninstall", self.name, *self._wait(timeout))

    def address(self, component: str) -> str:
        """The cluster's address of a component's service."""
        found = self.kubectl("get", "service", "-l", self._label(component), "-o", "json")
        addresses = [one["spec"]["clusterIP"] for one in json.loads(found)["items"]]
        return next(str(address) for address in addresses if address != "None")

    def secret(self, name: str, key: str) -> str:
        found = json.loads(self.kubectl("get", "secret", name, "-o", "json"))
        return base64.b64decode(found["data"][key]).decode()

    def pods(self, component: str) -> dict[str, bool]:
        """The component's pods of this release by their unique ids: whether each is ready."""
        found = self.kubectl("get", "pods", "-l", self._label(component), "-o", "json")
        ready = {}
        for pod in json.loads(found)["items"]:
            conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", ())}
            leaving = "deletionTimestamp" in pod["metadata"]
            ready[str(pod["metadata"]["uid"])] = conditions.get("Ready") == "True" and not leaving
        return ready

    def delete_pods(self, component: str, *, timeout: float = WAIT_S) -> float:
        """Deletes a component's pods; the seconds until as many new ones were ready."""
        began, before = time.monotonic(), self.pods(component)
        self.kubectl("delete", "pods", "-l", self._label(component), "--wait=false")
        while True:
            now = self.pods(component)
            if sum(now[uid] for uid in now.keys() - before.keys()) >= len(before):
                return time.monotonic() - began
            assert time.monotonic() < began + timeout, f"{component}: no new pod is ready after {timeout:.0f} s: {now}"
            time.sleep(0.5)

    def restart(self, component: str, *, timeout: float = WAIT_S) -> None:
        """`kubectl rollout restart`: pod after pod, each when the one before is ready again."""
        for owner in self.kubectl(
            "get", "statefulsets,deployments", "-l", self._label(component), "-o", "name"
        ).split():
            self.kubectl("rollout", "restart", owner)
            self.cluster.kubectl(
                "--namespace", self.namespace, "rollout", "status", owner, f"--timeout={timeout:.0f}s",
                timeout=timeout + 30,
            )  # fmt: skip

    def left(self) -> list[str]:
        """What the namespace holds, apart from what every namespace does; waits for what is going."""
        end = time.monotonic() + 180
        while True:
            found = leftovers(self.cluster, self.namespace)
            if all(name.startswith("persistentvolumeclaim/") for name in found) or time.monotonic() > end:
                return found
            time.sleep(0.5)

    def kubectl(self, *words: str | Path, check: bool = True, text: str | None = None) -> str:
        return self.cluster.kubectl("--namespace", self.namespace, *words, check=check, text=text)

    def _label(self, component: str) -> str:
        return f"app.kubernetes.io/instance={self.name},app.kubernetes.io/component={component}"

    def template(self, chart: Path, *values: Mapping[str, Any] | Path, show: str) -> list[dict[str, Any]]:
        """What one of the chart's templates makes of the values, as `helm template` prints it."""
        done = self._run("template", self.name, chart, *self._given(values), "--show-only", show)
        return [one for one in yaml.safe_load_all(done) if one]

    def _given(self, values: tuple[Mapping[str, Any] | Path, ...]) -> list[str]:
        words = []
        for number, one in enumerate(values):
            path = one
            if isinstance(one, Mapping):
                path = self.cluster.folder / f"{self.name}.{number}.values.json"
                path.write_text(json.dumps(one, indent=1))  # JSON is YAML
            words += ["--values", str(path)]
        return words

    def _wait(self, timeout: float) -> list[str]:
        return ["--wait", f"--timeout={timeout:.0f}s"]

    def _run(self, *words: str | Path, timeout: float = WAIT_S + 60) -> str:
        command = (*words, "--namespace", self.namespace)
        return self.cluster.run(self._helm, *command, timeout=timeout).stdout


def leftovers(cluster: ControlPlane, namespace: str) -> list[str]:
    """Names of all objects in a namespace, `kind/name`, but for those that every namespace has and helm's own."""
    kinds = ",".join(cluster.kubectl("api-resources", "--namespaced", "--verbs=list", "--output=name").split())
    found = cluster.kubectl("get", kinds, "--namespace", namespace, "--output=name", "--ignore-not-found").split()
    return sorted(name for name in found if not name.startswith(_CLUSTERS_OWN + _PASSING))
