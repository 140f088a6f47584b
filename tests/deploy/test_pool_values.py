"""Pools at a site: each is a Deployment with its devices, the site's data and a work folder, and nothing else."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deploy.charts import CHARTS, Manifest, Render, Text, of_kind
from deploy.value_sets import SITE, VALUES
from hanse_datapod.worker.pool.choice import read_pools

CHART = "hanse-datapod"
POOLS = VALUES[CHART]["pools"]


def pool(manifests: list[Manifest], name: str) -> dict[str, Any]:
    return of_kind(manifests, "Deployment")[f"demo-hanse-pool-{name}"]["spec"]


def worker(manifests: list[Manifest], name: str) -> dict[str, Any]:
    (only,) = pool(manifests, name)["template"]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def test_the_datapod_reads_the_pools(render: Render, tmp_path: Path) -> None:
    (config,) = of_kind(render(CHART, POOLS), "ConfigMap").values()
    (tmp_path / "pools.yaml").write_text(config["data"]["pools.yaml"])
    a100, slices, amd, processors = read_pools(tmp_path / "pools.yaml")
    assert [one.name for one in (a100, slices, amd, processors)] == ["a100", "slices", "amd", "processors"]
    assert [str(one.device) for one in (a100, slices, amd, processors)] == ["gpu", "gpu", "gpu", "cpu"]
    assert (a100.count, a100.memory_gib) == (2, 80)
    assert dict(slices.labels) == {"mig": "1g.10gb", "site": "b"}


@pytest.mark.parametrize(
    ("name", "resource", "count"),
    [("a100", "nvidia.com/gpu", 2), ("slices", "nvidia.com/mig-1g.10gb", 1), ("amd", "amd.com/gpu", 1)],
)
def test_a_worker_has_the_devices_of_its_pool(name: str, resource: str, count: int, render: Render) -> None:
    limits = worker(render(CHART, POOLS), name)["resources"]["limits"]
    assert {key: value for key, value in limits.items() if "/" in key} == {resource: count}


def test_the_worker_s_program_takes_its_arguments(render: Render) -> None:
    _, *command = worker(render(CHART, POOLS), "a100")["command"]
    done = subprocess.run(
        [sys.executable, *command, "--no-such-option"], capture_output=True, text=True, timeout=100
    )  # fmt: skip
    assert done.stderr.rstrip().endswith("unrecognized arguments: --no-such-option")


def test_a_pool_of_processors_has_no_device(render: Render) -> None:
    one = worker(render(CHART, POOLS), "processors")
    assert set(one["resources"]["limits"]) == {"cpu", "memory"}
    assert {"name": "HANSE_DEVICE", "value": "cpu"} in one["env"]


def test_a_pools_pods_have_the_placement_and_resources_of_its_values(render: Render) -> None:
    manifests = render(CHART, POOLS)
    given = POOLS["pools"][0]
    spec = pool(manifests, "a100")["template"]["spec"]
    for name in ("nodeSelector", "tolerations", "runtimeClassName", "priorityClassName"):
        assert spec[name] == given[name]
    limits = worker(manifests, "a100")["resources"]["limits"]
    assert limits["memory"] == "64Gi"
    assert limits["cpu"] == "8"
    assert [pool(manifests, one)["replicas"] for one in ("a100", "slices", "amd", "processors")] == [1, 7, 1, 0]


def test_images_go_by_the_device_and_may_be_given(render: Render) -> None:
    manifests = render(CHART, {**POOLS, "image": {"registry": "registry.example.org"}})
    images = {name: worker(manifests, name)["image"] for name in ("a100", "amd", "processors")}
    assert images == {
        "a100": "registry.example.org/hanse-datapod-cuda:0.1.0",
        "amd": "registry.example.org/hanse-datapod-rocm:6",
        "processors": "registry.example.org/hanse-datapod:0.1.0",
    }


def test_a_worker_sees_data_and_work_folder_at_the_paths_of_the_datapod_and_nothing_else(render: Render) -> None:
    manifests = render(CHART, POOLS)
    (datapod,) = of_kind(manifests, "StatefulSet").values()
    spec = datapod["spec"]["template"]["spec"]
    mounted = {one["mountPath"]: one for one in spec["containers"][0]["volumeMounts"]}
    sources = {one["name"]: one for one in spec["volumes"]}
    for name in ("a100", "slices", "amd", "processors"):
        own = {one["mountPath"]: one for one in worker(manifests, name)["volumeMounts"]}
        assert set(own) == {"/tmp", "/data/ward", "/var/lib/hanse-pool"}  # noqa: S108
        for path, one in own.items():
            assert one == mounted[path]
        for volume in pool(manifests, name)["template"]["spec"]["volumes"]:
            assert volume == sources[volume["name"]]


def test_a_worker_has_no_key_token_policy_or_address(render: Render) -> None:
    for name in ("a100", "processors"):
        given = {one["name"] for one in worker(render(CHART, POOLS), name)["env"]}
        assert not {one for one in given if one.startswith(("HANSE_JOIN", "HANSE_TOKEN", "HANSE_BUS", "HANSE_STORE"))}
        assert not {"HANSE_HOME", "HANSE_POLICY", "HANSE_HUB_CA"} & given


def test_a_worker_speaks_to_nobody(render: Render) -> None:
    policies = of_kind(render(CHART, {**SITE, "pools": [{"name": "a100"}]}), "NetworkPolicy")
    policy = policies["demo-hanse-pool-a100"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in policy
    assert "egress" not in policy
    labels = of_kind(render(CHART, {**SITE, "pools": [{"name": "a100"}]}), "Deployment")["demo-hanse-pool-a100"]
    assert policy["podSelector"]["matchLabels"].items() <= labels["spec"]["template"]["metadata"]["labels"].items()


def test_all_pools_share_one_volume_as_work_folder(render: Render) -> None:
    (claim,) = of_kind(render(CHART, POOLS), "PersistentVolumeClaim").values()
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert claim["spec"]["storageClassName"] == "nfs"
    mine = {**POOLS, "poolVolume": {"existingClaim": "scratch"}}
    manifests = render(CHART, mine)
    assert not of_kind(manifests, "PersistentVolumeClaim")
    volumes = pool(manifests, "a100")["template"]["spec"]["volumes"]
    assert {"name": "pool-work", "persistentVolumeClaim": {"claimName": "scratch"}} in volumes


def test_the_chart_renders_no_object_of_a_pool_without_pools(render: Render) -> None:
    manifests = render(CHART, SITE)
    assert not of_kind(manifests, "Deployment")
    assert not of_kind(manifests, "PersistentVolumeClaim")
    (datapod,) = of_kind(manifests, "StatefulSet").values()
    given = {one["name"]: one.get("value") for one in datapod["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert "HANSE_POOLS" not in given
    assert given["HANSE_DEVICE"] == "auto"


@pytest.mark.parametrize(
    ("pools", "said"),
    [
        ([{"name": "a"}, {"name": "a"}], "pools: a is there twice"),
        ([{"name": "local"}], "is the datapod's own pod"),
        ([{"name": "a", "mig": "1g.10gb", "resource": "nvidia.com/gpu"}], "a has mig and resource"),
        ([{"name": "a", "device": "cpu", "mig": "1g.10gb"}], "a has device cpu"),
    ],
)
def test_an_impossible_pool_is_refused(pools: list[dict[str, Any]], said: str, refusal: Text) -> None:
    assert said in refusal(CHART, {**SITE, "pools": pools})


def test_every_field_of_a_pool_is_documented() -> None:
    schema = json.loads((CHARTS / CHART / "values.schema.json").read_text())
    told = (CHARTS / CHART / "values.yaml").read_text().partition("Fields of a pool:")[2].partition("pools: []")[0]
    for field in schema["properties"]["pools"]["items"]["properties"]:
        assert re.search(rf"\b{field}\b", told), field
