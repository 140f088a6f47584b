"""Charts rendered by the real helm, and what tests ask of the manifests."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from deploy.kube_tools import ROOT, find_tool

CHARTS = ROOT / "charts"
Manifest = dict[str, Any]
Render = Callable[..., list[Manifest]]
Text = Callable[..., str]


class Charts:
    """Copies of all charts with their dependencies beside them; each rendering is made once and kept.

    Args:
        folder: where the copies go. The checkout stays as it is: no dependency is ever built into it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rendered: dict[str, subprocess.CompletedProcess[str]] = {}
        self._built: set[str] = set()
        shutil.copytree(CHARTS, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("charts", "*.tgz"))

    def path(self, chart: str) -> Path:
        """The chart's copy, with its dependencies in place."""
        folder = self._folder / chart
        if chart not in self._built:
            described = yaml.safe_load((folder / "Chart.yaml").read_text())
            for dependency in described.get("dependencies", []):
                address = str(dependency["repository"])
                assert address.startswith("file://"), f"{chart}: {dependency['name']} comes from {address}"
                source = self.path((folder / address.removeprefix("file://")).resolve().name)
                shutil.copytree(source, folder / "charts" / dependency["name"], dirs_exist_ok=True)
            self._built.add(chart)
        return folder

    def helm(self, version: int, *words: str) -> subprocess.CompletedProcess[str]:
        """Run helm 3 or 4; its exit status is the caller's to judge."""
        program = find_tool(f"helm{version}")
        assert program is not None
        with tempfile.TemporaryDirectory(dir=self._folder.parent) as home:
            environment = {"HOME": home, "PATH": "/usr/bin:/bin", "HELM_CACHE_HOME": home}
            return subprocess.run(
                [str(program), *words], capture_output=True, text=True, timeout=120, env=environment
            )  # fmt: skip

    def template(
        self,
        chart: str,
        values: Mapping[str, Any] | None = None,
        *,
        helm: int = 4,
        name: str = "demo",
        namespace: str = "hanse",
        kube: str = "1.31.0",
        apis: Sequence[str] = (),
        notes: bool = False,
        upgrade: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """`helm template` with these values; what it said before is not asked again."""
        words = [name, str(self.path(chart)), "--namespace", namespace]
        command = ["install", *words, "--dry-run=client"] if notes else ["template", *words, "--kube-version", kube]
        for api in apis:
            command += ["--api-versions", api]
        command += ["--is-upgrade"] * upgrade
        given = json.dumps(values or {}, sort_keys=True)
        key = json.dumps([helm, command, given])
        if key not in self._rendered:
            with tempfile.NamedTemporaryFile("w", suffix=".yaml", dir=self._folder.parent) as file:
                file.write(given)  # JSON is YAML
                file.flush()
                self._rendered[key] = self.helm(helm, *command, "--values", file.name)
        return self._rendered[key]


def manifests_of(text: str) -> list[Manifest]:
    """The manifests in a rendering, hooks and tests among them."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C takes a tenth of the time
    return [document for document in yaml.load_all(text, Loader=loader) if document]


def of_kind(manifests: Sequence[Manifest], kind: str) -> dict[str, Manifest]:
    """Those of a kind, by name."""
    return {str(one["metadata"]["name"]): one for one in manifests if one["kind"] == kind}


def templates(manifests: Sequence[Manifest]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each pod of everything that makes pods, labels and all, with `Kind/name` of what makes it."""
    for one in manifests:
        place = f"{one['kind']}/{one['metadata']['name']}"
        match one["kind"]:
            case "Pod":
                yield place, one
            case "CronJob":
                yield place, one["spec"]["jobTemplate"]["spec"]["template"]
            case "Deployment" | "StatefulSet" | "DaemonSet" | "Job":
                yield place, one["spec"]["template"]


def pods(manifests: Sequence[Manifest]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The specifications of these pods."""
    for place, template in templates(manifests):
        yield place, template["spec"]


def pod_of(manifests: Sequence[Manifest], kind: str, name: str) -> dict[str, Any]:
    """The specification of the pod that one of them makes."""
    return dict(pods(manifests))[f"{kind}/{name}"]


def containers(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All containers of a pod, those that run first among them."""
    return [*pod.get("initContainers", []), *pod["containers"]]
