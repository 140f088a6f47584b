"""The site's chart: what it renders is what the datapod reads, nothing comes in, and what could not work is refused."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.charts import Manifest, Render, Text, containers, of_kind, pod_of, pods
from deploy.value_sets import CODE, CODE_DIGEST, SITE, VALUES
from hanse_datapod.data.settings import TableOptions
from hanse_datapod.policy.site_policy import load_policy
from hanse_datapod.settings import DatapodSettings
from hanse_fabric.settings import PREFIX, load_settings

CHART = "hanse-datapod"
SETS = VALUES[CHART]
SETTINGS = {f"{PREFIX}{name.upper()}" for name in DatapodSettings.model_fields}


def with_data(**changes: Any) -> dict[str, Any]:
    return {**SITE, "data": {**SITE["data"], **changes}}


def stateful(manifests: list[Manifest]) -> dict[str, Any]:
    (one,) = of_kind(manifests, "StatefulSet").values()
    return one


def variables(pod: dict[str, Any]) -> dict[str, str]:
    (only,) = pod["containers"]
    return {one["name"]: one["value"] for one in only["env"] if "value" in one}


def mounts(pod: dict[str, Any]) -> dict[str, dict[str, Any]]:
    (only,) = pod["containers"]
    return {one["mountPath"]: one for one in only["volumeMounts"]}


@pytest.mark.parametrize("values", SETS)
def test_every_variable_is_a_setting_that_the_datapod_accepts(
    values: str, render: Render, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, pod in pods(render(CHART, SETS[values])):
        given = variables(pod)
        assert set(given) <= SETTINGS, place
        with monkeypatch.context() as patch:
            for name, value in given.items():
                patch.setenv(name, value)
            load_settings(DatapodSettings)


@pytest.mark.parametrize("values", SETS)
def test_every_path_in_a_setting_is_mounted(values: str, render: Render) -> None:
    for place, pod in pods(render(CHART, SETS[values])):
        mounted = mounts(pod)
        for name, value in variables(pod).items():
            if value.startswith("/"):
                assert any(Path(value).is_relative_to(one) for one in mounted), f"{place}: {name}={value}"


@pytest.mark.parametrize("values", SETS)
def test_only_the_site_s_own_folders_can_be_written(values: str, render: Render) -> None:
    for place, pod in pods(render(CHART, SETS[values])):
        writable = {path for path, one in mounts(pod).items() if not one.get("readOnly", False)}
        assert writable <= {
            "/tmp", "/var/lib/hanse-datapod", "/var/lib/hanse-pool", "/var/lib/hanse-scratch"  # noqa: S108
        }, place  # fmt: skip


@pytest.mark.parametrize("values", ["least", "full", "genotypes"])
def test_data_come_from_claims_that_are_mounted_read_only(values: str, render: Render) -> None:
    pod = stateful(render(CHART, SETS[values]))["spec"]["template"]["spec"]
    volumes = {one["name"]: one for one in pod["volumes"]}
    data = {path: one for path, one in mounts(pod).items() if path.startswith("/data/")}
    assert data
    for one in data.values():
        assert one["readOnly"] is True
        assert volumes[one["name"]]["persistentVolumeClaim"]["readOnly"] is True


def test_the_home_is_a_volume_of_its_own(render: Render) -> None:
    one = stateful(render(CHART, SITE))
    (claim,) = one["spec"]["volumeClaimTemplates"]
    assert mounts(one["spec"]["template"]["spec"])["/var/lib/hanse-datapod"]["name"] == claim["metadata"]["name"]
    assert variables(one["spec"]["template"]["spec"])["HANSE_HOME"] == "/var/lib/hanse-datapod"


def test_genotypes_are_given_with_their_phenotypes_and_covariates(render: Render) -> None:
    given = variables(stateful(render(CHART, SETS["genotypes"]))["spec"]["template"]["spec"])
    assert given["HANSE_DATA"] == "/data/cohort/cohort"
    assert given["HANSE_DATA_KIND"] == "plink"
    assert given["HANSE_PHENOTYPES"] == "/data/cohort/traits.pheno"
    assert given["HANSE_COVARIATES"] == "/data/cohort/traits.cov"


def test_a_token_becomes_a_secret_that_may_be_gone_later(render: Render) -> None:
    manifests = render(CHART, SETS["token"])
    (secret,) = of_kind(manifests, "Secret").values()
    assert secret["stringData"] == {"token": "join_0123abc"}
    (only,) = stateful(manifests)["spec"]["template"]["spec"]["containers"]
    (token,) = [one for one in only["env"] if one["name"] == "HANSE_TOKEN"]
    wanted = {"name": secret["metadata"]["name"], "key": "token", "optional": True}
    assert token["valueFrom"] == {"secretKeyRef": wanted}


def test_the_datapod_chart_makes_no_secret_without_a_token(render: Render) -> None:
    manifests = render(CHART, SITE)
    assert not of_kind(manifests, "Secret")
    (only,) = stateful(manifests)["spec"]["template"]["spec"]["containers"]
    assert "HANSE_TOKEN" not in {one["name"] for one in only["env"]}


def test_the_policy_is_one_that_the_datapod_reads(render: Render, tmp_path: Path) -> None:
    policy = {
        "minimum_participants": 3,
        "masking": {"required": True, "compensator": "1sYqNa0oWcVwGt2eJb4sEw3JMxP8rkQZ5yUu7hTnC0A="},
        "privacy": {"epsilon": 20.5, "delta": 1.0e-5},
    }
    (config,) = of_kind(render(CHART, {**SITE, "policy": {"inline": policy}}), "ConfigMap").values()
    (tmp_path / "policy.yaml").write_text(config["data"]["policy.yaml"])
    read = load_policy(tmp_path / "policy.yaml")
    assert (read.minimum_participants, read.masking.required, read.privacy.delta) == (3, True, 1e-5)


def test_site_code_arrives_with_the_bytes_whose_digest_the_policy_has(render: Render) -> None:
    (config,) = of_kind(render(CHART, SETS["full"]), "ConfigMap").values()
    assert config["data"]["site.py"] == CODE
    assert hashlib.sha256(config["data"]["site.py"].encode()).hexdigest() == CODE_DIGEST


def test_policy_and_site_code_may_lie_on_volumes(render: Render) -> None:
    manifests = render(CHART, VALUES[CHART]["files-on-volumes"])
    for kind, name in (("StatefulSet", "demo-hanse-datapod"), ("Deployment", "demo-hanse-pool-processors")):
        pod = pod_of(manifests, kind, name)
        given = {one["name"]: one.get("value") for one in containers(pod)[0]["env"]}
        assert given["HANSE_CODE"] == "/etc/hanse/code/ward.py"
        volumes = {one["name"]: one.get("persistentVolumeClaim") for one in pod["volumes"]}
        assert volumes["code"] == {"claimName": "site-files", "readOnly": True}
        if kind == "StatefulSet":
            assert given["HANSE_POLICY"] == "/etc/hanse/policy/ward.yaml"
            assert volumes["policy"] == {"claimName": "site-files", "readOnly": True}
        else:
            assert "policy" not in volumes


def test_a_changed_policy_restarts_the_datapod(render: Render) -> None:
    def annotation(minimum: int) -> str:
        one = stateful(render(CHART, {**SITE, "policy": {"inline": {"minimum_participants": minimum}}}))
        return str(one["spec"]["template"]["metadata"]["annotations"]["checksum/config"])

    assert annotation(3) != annotation(4)


def test_nothing_comes_in_and_what_goes_out_goes_to_the_hub_s_ports(render: Render) -> None:
    policies = of_kind(render(CHART, {**SITE, "hub": {"url": "https://hub.example.org:8443"}}), "NetworkPolicy")
    (policy,) = policies.values()
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in policy["spec"]
    dns, out = policy["spec"]["egress"]
    assert {one["port"] for one in dns["ports"]} == {53}
    assert {one["port"] for one in out["ports"]} == {443, 4222, 9222, 8333, 8443}


def test_only_who_is_named_may_read_the_metrics(render: Render) -> None:
    policies = of_kind(render(CHART, SETS["full"]), "NetworkPolicy")
    (rule,) = policies["demo-hanse-datapod"]["spec"]["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": 8081}]
    assert rule["from"] == SETS["full"]["networkPolicy"]["scrapeFrom"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"hub": {"url": ""}}, "hub.url is empty"),
        ({"join": {"token": "join_a", "existingSecret": "b"}}, "join.token and join.existingSecret are both given"),
        ({"data": {"train": "", "volumes": []}}, "data.train and data.genotypes are empty"),
        (with_data(genotypes="/data/ward/cohort"), "data.train and data.genotypes are both given"),
        (
            with_data(train="/data/other/x.csv"),
            "data.train: /data/other/x.csv lies in no volume of data.volumes (ward)",
        ),
        (with_data(phenotypes="/data/ward/x"), "give data.genotypes"),
        (with_data(kind="code"), "there is no siteCode"),
        (with_data(volumes=[{"name": "ward", "existingClaim": "a"}] * 2), "data.volumes: ward is there twice"),
        ({"policy": {"inline": {"a": 1}, "existingConfigMap": "b"}}, "policy.existingClaim: only one of them"),
        ({"hub": {"url": "https://h", "caSecret": "a", "caConfigMap": "b"}}, "only one of them"),
        ({"scratch": {"existingClaim": "a", "size": "1Gi"}}, "leave out scratch.size"),
        ({"scratch": {"storageClass": "fast"}}, "scratch.storageClass is given without scratch.size"),
        ({"siteCode": {"inline": CODE}}, f"site_code: {{digests: [{CODE_DIGEST}]}}"),
    ],
)
def test_chart_values_that_cannot_work_are_refused_with_what_to_do(
    values: dict[str, Any], said: str, refusal: Text
) -> None:
    assert said in refusal(CHART, {**SITE, **values})


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"hub": {"url": "hub.example.org"}}, "url"),
        ({"join": {"token": "secret"}}, "token"),
        ({"replicas": 2}, "replicas"),
        ({"data": {"train": "/etc/passwd"}}, "train"),
        (with_data(volumes=[{"name": "ward"}]), "volumes"),
        (with_data(volumes=[{"name": "ward", "hostPath": "/srv"}]), "hostPath"),
        (with_data(kind="excel"), "kind"),
        ({"device": "gpu"}, "device"),
        ({"pools": [{"name": "A100"}]}, "name"),
        ({"pools": [{"name": "a", "mig": "10gb"}]}, "mig"),
        ({"pools": [{"name": "a", "count": 0}]}, "count"),
        ({"pools": [{"name": "a", "device": "tpu"}]}, "device"),
        ({"networkPolicy": {"egress": [{"ports": [], "cidrs": ["10.0.0.0/8"]}]}}, "ports"),
        ({"persistence": {"size": "big"}}, "size"),
        ({"scratch": {"size": "much"}}, "size"),
    ],
)
@pytest.mark.parametrize("helm", [3, 4])
def test_a_bad_value_is_refused_by_name(values: dict[str, Any], named: str, helm: int, refusal: Text) -> None:
    said = refusal(CHART, {**SITE, **values}, helm=helm)
    assert "schema" in said
    assert named in said


def test_the_notes_say_what_to_type_next(notes: Text) -> None:
    said = notes(CHART, SETS["token"])
    for words in ("rollout status statefulset/demo-hanse-datapod", "verify-log", "budget", "--set join.token="):
        assert words in said
    assert "No token is given" in notes(CHART, SITE)


def test_settings_of_ones_own_are_added(render: Render) -> None:
    given = {**SITE, "extraEnv": {"HANSE_TEST_FRACTION": 0.5}}
    (only,) = stateful(render(CHART, given))["spec"]["template"]["spec"]["containers"]
    assert only["env"][-1] == {"name": "HANSE_TEST_FRACTION", "value": "0.5"}


def test_how_tables_are_written_is_given_to_the_datapod(render: Render) -> None:
    site = {**SITE, "data": {**SITE["data"], "table": {"separator": ";"}}}
    given = variables(stateful(render(CHART, site))["spec"]["template"]["spec"])
    assert TableOptions.of(given["HANSE_TABLE"]) == TableOptions(separator=";")


def test_the_default_values_are_those_of_the_settings(render: Render) -> None:
    given = variables(stateful(render(CHART, SITE))["spec"]["template"]["spec"])
    for name in ("test_fraction", "threads", "studies_at_once", "data_kind"):
        default = DatapodSettings.model_fields[name].default
        assert yaml.safe_load(given[f"{PREFIX}{name.upper()}"]) == default, name


@pytest.mark.parametrize(
    ("scratch", "source"),
    [
        ({"existingClaim": "nvme"}, {"persistentVolumeClaim": {"claimName": "nvme"}}),
        (
            {"size": "200Gi", "storageClass": "fast"},
            {
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "spec": {
                            "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
                            "resources": {"requests": {"storage": "200Gi"}},
                        }
                    }
                }
            },
        ),
    ],
)  # fmt: skip
def test_data_larger_than_memory_have_a_volume_of_their_own(
    scratch: dict[str, Any], source: dict[str, Any], render: Render
) -> None:
    pod = stateful(render(CHART, {**SITE, "scratch": scratch}))["spec"]["template"]["spec"]
    assert {"name": "scratch", **source} in pod["volumes"]
    assert mounts(pod)[variables(pod)["HANSE_SCRATCH"]]["name"] == "scratch"
    without = stateful(render(CHART, SITE))["spec"]["template"]["spec"]
    assert "HANSE_SCRATCH" not in variables(without), "then the home's volume has them"
