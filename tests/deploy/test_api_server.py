"""The charts on a real API server: accepted, installed, upgraded from the previous version, rolled back, removed.

No node is there, so no pod runs: hooks are left out, and nothing is waited for (`make e2e-kube` does both). The server
is Kubernetes 1.20; `kube/values-1.20.yaml` switches off what it has no kinds for.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from deploy.charts import Charts
from deploy.kube import assets
from deploy.kube.control_plane import ControlPlane
from deploy.kube.e2e.release import leftovers

OLD_SERVER = yaml.safe_load((Path(__file__).parent / "kube" / "values-1.20.yaml").read_text())

# What each chart must be told.
GIVEN: dict[str, dict[str, object]] = {
    "hanse": {**OLD_SERVER, "compensator": {"enabled": True}},
    "hanse-compensator": {
        "bus": {"url": "tls://bus.example.org:4222", "existingSecret": "bus"},
        "store": {"url": "https://store.example.org", "existingSecret": "store"},
    },
    "hanse-datapod": {
        "hub": {"url": "https://hub.example.org"},
        "join": {"token": "join_for-this-test"},
        "data": {"volumes": [{"name": "ward", "existingClaim": "ward"}], "train": "/data/ward/train.csv"},
    },
}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of this module's own."""
    reason = assets.missing(assets.SERVERS, assets.binaries())
    if reason is not None:
        pytest.skip(reason)
    plane = ControlPlane(assets.binaries(), tmp_path_factory.mktemp("kube"), tied=True)
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()


@pytest.fixture(scope="module")
def previous(charts: Charts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The charts as their version before this one: another number, the same templates."""
    folder = tmp_path_factory.mktemp("previous")
    for chart in GIVEN:
        shutil.copytree(charts.path(chart), folder / chart)
        path = folder / chart / "Chart.yaml"
        described = yaml.safe_load(path.read_text())
        path.write_text(yaml.safe_dump({**described, "version": "0.0.9"}))
    return folder


@pytest.mark.parametrize("helm", [3, 4])
@pytest.mark.parametrize("chart", sorted(GIVEN))
def test_a_chart_is_installed_upgraded_rolled_back_and_leaves_only_volumes(
    cluster: ControlPlane, charts: Charts, previous: Path, tmp_path: Path, chart: str, helm: int
) -> None:
    namespace = name = f"{chart}-{helm}"
    given = tmp_path / "values.json"
    given.write_text(json.dumps(GIVEN[chart]))
    values = ("--values", given)

    def run(*words: str | Path) -> str:
        return cluster.run(f"helm{helm}", *words, "--namespace", namespace).stdout

    def revision() -> tuple[str, str, str]:
        [found] = json.loads(run("list", "--output", "json"))
        return found["revision"], found["chart"], found["status"]

    current = f"{chart}-{yaml.safe_load((charts.path(chart) / 'Chart.yaml').read_text())['version']}"
    cluster.kubectl("create", "namespace", namespace)
    run("install", name, charts.path(chart), *values, "--dry-run=server")
    assert leftovers(cluster, namespace) == []

    run("install", name, previous / chart, *values, "--no-hooks", "--set", "log.level=debug")
    assert revision() == ("1", f"{chart}-0.0.9", "deployed")
    installed = run("get", "manifest", name)
    run("upgrade", name, charts.path(chart), *values, "--no-hooks")
    assert revision() == ("2", current, "deployed")
    run("rollback", name, "1", "--no-hooks")
    assert revision() == ("3", f"{chart}-0.0.9", "deployed")
    assert run("get", "manifest", name) == installed
    run("uninstall", name, "--no-hooks")
    end = time.monotonic() + 180
    while True:
        found = [name for name in leftovers(cluster, namespace) if not name.startswith("persistentvolumeclaim/")]
        if not found:
            return
        assert time.monotonic() < end, f"left after the uninstallation: {found}"
        time.sleep(0.2)


def test_the_compensator_sees_whose_account_it_is_given_and_who_else_is_in_its_namespace(
    cluster: ControlPlane, charts: Charts, tmp_path: Path
) -> None:
    def of_the_hub(kind: str, name: str, **fields: object) -> str:
        labels = {"app.kubernetes.io/part-of": "hanse", "app.kubernetes.io/component": "coordinator"}
        version = "apps/v1" if kind == "Deployment" else "v1"
        metadata = {"name": name, "namespace": "crowded", "labels": labels}
        return json.dumps({"apiVersion": version, "kind": kind, "metadata": metadata, **fields})

    given = tmp_path / "values.json"
    given.write_text(json.dumps(GIVEN["hanse-compensator"]))
    pod = {"metadata": {"labels": {"app": "hub"}}, "spec": {"containers": [{"name": "hub", "image": "hub"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "hub"}}, "template": pod}
    cluster.kubectl("create", "namespace", "crowded")
    for text in (of_the_hub("ServiceAccount", "robot"), of_the_hub("Deployment", "coordinator", spec=spec)):
        cluster.kubectl("create", "--validate=false", "-f", "-", text=text)
    words = ("install", "trustee", charts.path("hanse-compensator"), "--values", given, "--dry-run=server")
    theirs = ("--set", "serviceAccount.create=false,serviceAccount.name=robot")
    refused = cluster.run("helm4", *words, "--namespace", "crowded", *theirs, check=False)
    assert refused.returncode != 0
    assert '"robot" in namespace crowded belongs to the hub\'s coordinator' in refused.stderr
    told = cluster.run("helm4", *words, "--namespace", "crowded")
    assert "WARNING: the hub's coordinator coordinator runs in this namespace" in told.stdout


def test_another_number_of_nats_servers_that_would_lose_streams_is_refused(
    cluster: ControlPlane, charts: Charts
) -> None:
    def upgrade(servers: int) -> str:
        words = ("upgrade", "--install", "grown", charts.path("hanse"), "--namespace", "grown", "--no-hooks")
        switched_off = ("--set", "podDisruptionBudget.enabled=false", "--set", f"nats.replicas={servers}")
        done = cluster.run("helm4", *words, *switched_off, check=False)
        return done.stderr if done.returncode else "upgraded"

    cluster.kubectl("create", "namespace", "grown")
    assert upgrade(1) == "upgraded"
    assert "nats.replicas: 3 is asked for and 1 is installed; streams would be lost" in upgrade(3)
    cluster.kubectl("delete", "statefulset", "grown-hanse-nats", "--namespace", "grown")  # what the docs say
    assert upgrade(3) == "upgraded"
    assert "nats.replicas: 1 is asked for and 3 is installed" in upgrade(1)
