"""What an installation of the hub meets in the long run: other sizes, late servers, closed namespaces, namesakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deploy.charts import Manifest, Render, Text, containers, of_kind, pod_of, pods
from deploy.hub_arrows import chosen
from deploy.value_sets import EVERYTHING, FOUND_THERE, PRODUCTION, VALUES
from hanse_coordinator.settings import CoordinatorSettings, roles_of
from hanse_fabric.settings import load_settings
from hanse_fabric.subjects import SMALLEST_STORE, STREAMS

GIB = 1 << 30


def server(manifests: list[Manifest], name: str) -> dict[str, Any]:
    """The first container of a StatefulSet."""
    return containers(pod_of(manifests, "StatefulSet", f"demo-hanse-{name}"))[0]


def variable(container: dict[str, Any], name: str) -> str:
    return next(str(one["value"]) for one in container["env"] if one["name"] == name)


@pytest.mark.parametrize(("size", "total"), [("10Gi", 10 * GIB), ("1.5Ti", 1536 * GIB), ("20G", 20_000_000_000)])
def test_jetstream_takes_eight_tenths_of_its_volume_unless_told(size: str, total: int, render: Render) -> None:
    def taken(**jetstream: str) -> str:
        nats = {"persistence": {"size": size}, "jetstream": jetstream}
        config = of_kind(render("hanse", {"nats": nats}), "ConfigMap")["demo-hanse-nats"]["data"]["nats.conf"]
        (line,) = [one for one in config.splitlines() if "max_file_store" in one]
        return str(line.split()[1])

    assert int(taken()) == pytest.approx(0.8 * total, abs=1)
    assert taken(maxFileStore="5GB") == "5GB"


def test_a_volume_that_cannot_hold_what_streams_reserve_is_refused(render: Render, refusal: Text) -> None:
    reserved = sum(stream.max_bytes or 0 for stream in STREAMS)
    assert reserved < SMALLEST_STORE == 0.8 * 10 * GIB
    said = "nats.persistence.size: 9Gi is too little, 10Gi is the least"
    assert said in refusal("hanse", {"nats": {"persistence": {"size": "9Gi"}}})
    assert render("hanse", {"nats": {"persistence": {"size": "10Gi"}}})


@pytest.mark.parametrize(("memory", "total"), [("8Gi", 8 * GIB), ("1500M", 1_500_000_000), (2 * GIB, 2 * GIB)])
def test_servers_in_go_clean_up_before_their_memory_limit(memory: str | int, total: int, render: Render) -> None:
    resources = {"limits": {"memory": memory}}
    manifests = render("hanse", {"nats": {"resources": resources}, "store": {"resources": resources}})
    for name in ("nats", "store"):
        assert int(variable(server(manifests, name), "GOMEMLIMIT")) == pytest.approx(0.9 * total, abs=1)
    told = render("hanse", {"nats": {"goMemLimit": "500MiB"}})
    assert variable(server(told, "nats"), "GOMEMLIMIT") == "500MiB"


def test_the_state_job_waits_for_late_servers_and_the_question_before_an_upgrade_does_not(render: Render) -> None:
    jobs = {name: one["spec"] for name, one in of_kind(render("hanse"), "Job").items() if "-state-" in name}
    before = jobs.pop("demo-hanse-state-before")
    (patient,) = jobs.values()
    assert "activeDeadlineSeconds" not in patient
    assert patient["template"]["spec"]["restartPolicy"] == "OnFailure"
    assert patient["backoffLimit"] >= 100
    assert before["activeDeadlineSeconds"] == 600
    assert before["template"]["spec"]["restartPolicy"] == "Never"


def test_no_pod_has_the_account_that_everybody_in_the_namespace_has(render: Render) -> None:
    manifests = render("hanse", EVERYTHING)
    accounts = set(of_kind(manifests, "ServiceAccount"))
    for place, pod in pods(manifests):
        assert pod["serviceAccountName"] in accounts, place


def test_hubs_of_the_same_name_in_two_namespaces_do_not_share_what_is_the_clusters(render: Render) -> None:
    def names(namespace: str) -> set[str]:
        manifests = render("hanse", {"priorityClasses": {"create": True}}, namespace=namespace)
        classes = set(of_kind(manifests, "PriorityClass"))
        used = {pod.get("priorityClassName") for place, pod in pods(manifests) if place.startswith("Stateful")}
        assert used <= classes
        return classes

    assert not names("trial") & names("production")


def test_a_host_for_all_names_of_a_domain_is_a_host(render: Render) -> None:
    ingress = {"enabled": True, "api": {"host": "*.example.org"}}
    (one,) = of_kind(render("hanse", {"ingress": ingress}), "Ingress").values()
    assert one["spec"]["rules"][0]["host"] == "*.example.org"
    assert one["spec"]["tls"][0]["hosts"] == ["*.example.org"]


def test_the_compensator_of_a_trial_is_watched_and_sends_traces_as_its_neighbours_do(render: Render) -> None:
    for enabled in (True, False):
        values = {"compensator": {"enabled": enabled}, "otlpEndpoint": "http://collector:4318"}
        policies = of_kind(render("hanse", values), "NetworkPolicy")
        for name in ("metrics", "out-otlp"):
            assert ("compensator" in chosen(policies[f"demo-hanse-{name}"])) is enabled, name


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"tls": {"existingSecret": "ours"}}, "compensator.bus.caSecret: ours is needed here as well"),
        (
            {
                **PRODUCTION,
                "compensator": {"bus": {"url": "tls://b", "caSecret": "bus-ca"}, "store": {"url": "https://s"}},
            },
            "compensator.store.caSecret: store-ca is needed",
        ),
    ],
    ids=lambda each: "" if isinstance(each, dict) else each[:30],
)
def test_the_hubs_chart_asks_for_what_its_own_compensator_cannot_know(
    values: dict[str, Any], said: str, refusal: Text
) -> None:
    given = {**values, "compensator": {"enabled": True, **values.get("compensator", {})}}
    assert said in refusal("hanse", given)


def test_people_sign_in_as_the_values_say(render: Render, refusal: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    manifests = render("hanse", EVERYTHING)
    pod = next(pod for place, pod in pods(manifests) if place.endswith("coordinator"))
    for each in containers(pod)[0]["env"]:
        if each["name"].startswith(("HANSE_OIDC", "HANSE_CONSOLE", "HANSE_SESSION", "HANSE_LOCAL")):
            monkeypatch.setenv(each["name"], each["value"])
    read = load_settings(CoordinatorSettings)
    assert (read.local_people, read.session_idle, read.session_lifetime) == (False, 1800, 43_200)
    assert roles_of(read.oidc_roles)["cardiology"].projects == ("triage",)
    assert read.oidc_client_secret_file == Path("/etc/hanse/provider/client_secret")
    (mounted,) = [one["secret"]["secretName"] for one in pod["volumes"] if one["name"] == "provider"]
    assert mounted == "oidc"
    assert chosen(of_kind(manifests, "NetworkPolicy")["demo-hanse-out-provider"]) == ["coordinator"]
    alone = {"hub": {"signIn": {"provider": {"issuer": "https://login.example.org", "client": "hanse"}}}}
    assert "hub.consoleUrl" in refusal("hanse", alone)
    plain = {"hub": {"signIn": {"provider": {"issuer": "http://login.example.org"}}}}
    assert "issuer" in refusal("hanse", plain)


def test_an_external_store_and_bus_are_used_as_their_owners_made_them(render: Render) -> None:
    manifests = render("hanse", FOUND_THERE)
    connection = of_kind(manifests, "ConfigMap")["demo-hanse-connection"]["data"]
    assert connection["HANSE_BUS_CERT"] == "/etc/hanse/bus-client/tls.crt"
    users = [(place, pod) for place, pod in pods(manifests) if "-keys" not in place and "-test" not in place]
    assert len(users) >= 7
    for place, pod in users:
        (container,) = containers(pod)
        assert "/etc/hanse/bus-client" in [one["mountPath"] for one in container["volumeMounts"]], place
        references = [one["valueFrom"].get("secretKeyRef") for one in container["env"] if "valueFrom" in one]
        keys = {one["key"] for one in references if one}
        assert keys == (set() if "-state-" in place else {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}), place


@pytest.mark.parametrize("field", ["bus.clientCertSecret", "store.keys"])
def test_the_compensator_of_a_trial_is_told_them_too(field: str, refusal: Text) -> None:
    group, _, name = field.partition(".")
    compensator = FOUND_THERE["compensator"]
    less = {key: value for key, value in compensator[group].items() if key != name}
    said = refusal("hanse", {**FOUND_THERE, "compensator": {**compensator, group: less}})
    assert f"compensator.{field}: " in said
    assert "is needed here as well" in said


@pytest.mark.parametrize(("servers", "copies"), [(1, 1), (3, 3), (5, 3)])
def test_a_backup_comes_back_to_as_many_servers_as_there_are_now(servers: int, copies: int, render: Render) -> None:
    values = {"nats": {"replicas": servers}, "backup": {"restore": {"from": "newest"}}}
    jobs = of_kind(render("hanse", values), "Job")
    (restore,) = [one for name, one in jobs.items() if "-restore-" in name]
    assert f"--replicas={copies}" in containers(restore["spec"]["template"]["spec"])[0]["args"]


@pytest.mark.parametrize(
    ("chart", "values"), [("hanse", "everything"), ("hanse-compensator", "apart"), ("hanse-datapod", "pools")]
)
def test_the_longest_name_of_a_release_is_not_too_long_for_what_it_makes(
    chart: str, values: str, render: Render
) -> None:
    longest = "a-department-of-a-hospital-with-a-very-long-name-2026x"[:53]
    given = {**VALUES[chart][values]}
    if chart == "hanse-datapod":
        given["pools"] = [{"name": "a" * 20}]
    for one in render(chart, given, name=longest):
        # Kubernetes adds a revision of ten letters to a StatefulSet's name, and a time to a CronJob's.
        most = {"StatefulSet": 52, "CronJob": 52, "Service": 63, "Job": 63}.get(one["kind"], 253)
        assert len(one["metadata"]["name"]) <= most, one["metadata"]["name"]
        for label in one["metadata"]["labels"].values():
            assert len(label) <= 63, label


@pytest.mark.parametrize("name", ["1st-hub", "hub.example"])
def test_a_name_that_services_cannot_have_is_refused(name: str, refusal: Text, render: Render) -> None:
    said = f"release name: everything would be called {name}-hanse-..., and Services begin with a letter"
    assert said in refusal("hanse", name=name)
    assert render("hanse", {"global": {"fullnameOverride": "first-hanse"}}, name=name)


@pytest.mark.parametrize(
    ("chart", "values"), [("hanse", "default"), ("hanse-compensator", "apart"), ("hanse-datapod", "least")]
)
def test_names_are_asked_of_a_dns_with_ports_of_its_own(chart: str, values: str, render: Render) -> None:
    given = {**VALUES[chart][values], "networkPolicy": {"dns": {"namespace": "openshift-dns", "ports": [5353]}}}
    rules = [
        rule
        for policy in of_kind(render(chart, given), "NetworkPolicy").values()
        for rule in policy["spec"].get("egress", [])
        if "openshift-dns" in str(rule)
    ]
    assert rules
    for rule in rules:
        assert rule["ports"] == [{"protocol": "UDP", "port": 5353}, {"protocol": "TCP", "port": 5353}]


def test_an_external_bus_keeps_accounts_where_it_may_write(render: Render) -> None:
    external = {**FOUND_THERE["externalNats"], "accountsFolder": "/var/lib/nats/accounts"}
    for values, told in (({**FOUND_THERE, "externalNats": external}, ["/var/lib/nats/accounts"]), ({}, [])):
        job = of_kind(render("hanse", values), "Job")["demo-hanse-keys"]
        words = containers(job["spec"]["template"]["spec"])[0]["args"]
        folders = [word.partition("=")[2] for word in words if word.startswith("--accounts-folder=")]
        assert folders == told
