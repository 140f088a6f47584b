"""The compensator's chart: apart from the hub or beside it, but never under its accounts or with its credentials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.charts import Charts, Manifest, Render, Text, manifests_of, of_kind
from deploy.value_sets import APART
from hanse_compensator.settings import CompensatorSettings
from hanse_fabric.settings import PREFIX

CHART = "hanse-compensator"


def container(manifests: list[Manifest]) -> dict[str, Any]:
    (one,) = of_kind(manifests, "StatefulSet").values()
    (only,) = one["spec"]["template"]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def variables(manifests: list[Manifest]) -> dict[str, Any]:
    """Of the container, those of the chart's own ConfigMap among them; None for what a Secret gives."""
    found: dict[str, Any] = {one["name"]: one.get("value") for one in container(manifests)["env"]}
    for one in of_kind(manifests, "ConfigMap").values():
        found |= one["data"]
    return found


def settings_of(given: dict[str, Any]) -> CompensatorSettings:
    """What the compensator reads of these variables as its own settings."""
    own = {name: given.get(f"{PREFIX}{name.upper()}") for name in CompensatorSettings.model_fields}
    return CompensatorSettings(**{name: own[name] for name in own if "compensator" in name and own[name] is not None})


def test_every_variable_is_a_setting_of_the_compensator(render: Render) -> None:
    full = {**APART, "bus": {**APART["bus"], "caSecret": "ca", "clientCertSecret": "client"}}
    given = variables(render(CHART, {**full, "otlpEndpoint": "http://collector:4318"}))
    settings = {f"{PREFIX}{name.upper()}" for name in CompensatorSettings.model_fields}
    assert set(given) <= settings
    assert {"HANSE_BUS_URL", "HANSE_BUS_CREDS", "HANSE_STORE_URL", "HANSE_STORE_SECRET_KEY"} <= set(given)


def test_the_values_are_settings_that_the_compensator_accepts(render: Render) -> None:
    chosen = {"minimum": 5, "members": 1_000_000, "maskMib": 65_536, "memoryMib": 9, "jobs": 2, "name": "trustee"}
    given = variables(render(CHART, {**APART, **chosen}))
    read = settings_of(given)
    assert (read.compensator_minimum, read.compensator_members, read.compensator_mask_mib) == (5, 1_000_000, 65_536)
    assert (read.compensator_memory_mib, read.compensator_jobs, read.compensator_name) == (9, 2, "trustee")


def test_apart_the_key_is_made_on_its_own_volume_beside_its_memory(render: Render) -> None:
    manifests = render(CHART, APART)
    given = variables(manifests)
    assert not of_kind(manifests, "Secret")
    (stateful,) = of_kind(manifests, "StatefulSet").values()
    (claim,) = stateful["spec"]["volumeClaimTemplates"]
    (mounted,) = [one for one in container(manifests)["volumeMounts"] if one["name"] == claim["metadata"]["name"]]
    for name in ("HANSE_COMPENSATOR_KEY", "HANSE_COMPENSATOR_MEMORY"):
        assert Path(given[name]).parent == Path(mounted["mountPath"])
    assert stateful["spec"]["replicas"] == 1


def test_a_key_of_ones_own_is_read_from_its_secret_and_the_memory_stays_on_the_volume(render: Render) -> None:
    given = variables(render(CHART, {**APART, "key": {"existingSecret": "sealing-key"}}))
    assert given["HANSE_COMPENSATOR_KEY"] == "/etc/hanse/key/compensator.pem"
    assert given["HANSE_COMPENSATOR_MEMORY"].startswith("/var/lib/")


SHARE = {"enabled": True, "keyHours": 6.5, "keptHours": 48}


def test_one_of_several_has_an_identity_and_its_keys_on_the_volume_beside_its_memory(render: Render) -> None:
    given = variables(render(CHART, {**APART, "name": "notary", "share": SHARE}))
    assert "HANSE_COMPENSATOR_KEY" not in given
    read = settings_of(given)
    assert (read.compensator_key_hours, read.compensator_kept_hours, read.compensator_name) == (6.5, 48.0, "notary")
    for name in ("IDENTITY", "KEYS", "MEMORY"):
        assert Path(given[f"HANSE_COMPENSATOR_{name}"]).parent == Path("/var/lib/hanse-compensator")


@pytest.mark.parametrize("wrong", [{"keyHours": 0}, {"keptHours": 721}, {"hours": 3}])
def test_hours_of_keys_that_are_none_are_refused(wrong: dict[str, Any], refusal: Text) -> None:
    assert next(iter(wrong)) in refusal(CHART, {**APART, "share": {**SHARE, **wrong}})


def test_the_notes_of_one_of_several_say_how_to_get_its_identity(notes: Text) -> None:
    said = notes(CHART, {**APART, "share": SHARE})
    assert "python -m hanse_compensator identity" in said
    assert "hanse_compensator key" not in said
    assert "keys of 6.5 hours, which are destroyed 48 hours later" in said


def test_nothing_comes_in_and_only_bus_store_and_dns_are_reached(render: Render) -> None:
    narrow = {"bus": {"cidrs": ["192.0.2.7/32"]}, "store": {"cidrs": ["192.0.2.8/32"], "ports": [8333, 8334]}}
    (policy,) = of_kind(render(CHART, {**APART, "networkPolicy": narrow}), "NetworkPolicy").values()
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in policy["spec"]
    dns, bus, store = policy["spec"]["egress"]
    assert {one["port"] for one in dns["ports"]} == {53}
    assert bus == {"ports": [{"protocol": "TCP", "port": 4222}], "to": [{"ipBlock": {"cidr": "192.0.2.7/32"}}]}
    assert [one["port"] for one in store["ports"]] == [8333, 8334]
    assert store["to"] == [{"ipBlock": {"cidr": "192.0.2.8/32"}}]


@pytest.mark.parametrize(
    ("url", "port"),
    [("tls://b", 4222), ("nats://b:4333", 4333), ("wss://b", 443), ("ws://b:9222", 9222)],
)
def test_the_port_of_the_bus_is_that_of_its_address(url: str, port: int, render: Render) -> None:
    (policy,) = of_kind(render(CHART, {**APART, "bus": {**APART["bus"], "url": url}}), "NetworkPolicy").values()
    assert policy["spec"]["egress"][1]["ports"] == [{"protocol": "TCP", "port": port}]


@pytest.mark.parametrize(
    "account", ["hub-hanse-coordinator", "hanse-aggregator", "x-nats", "hanse-keys", "coordinator"]
)
def test_an_account_of_the_hub_is_refused(account: str, refusal: Text) -> None:
    for create in (True, False):
        said = refusal(CHART, {**APART, "serviceAccount": {"create": create, "name": account}})
        assert f'serviceAccount.name: "{account}" is an account of the hub' in said
        assert "an account of its own" in said


@pytest.mark.parametrize(("name", "reason"), [("", "is empty"), ("default", "everybody's")])
def test_a_compensator_without_an_account_of_its_own_is_refused(name: str, reason: str, refusal: Text) -> None:
    assert reason in refusal(CHART, {**APART, "serviceAccount": {"create": False, "name": name}})


@pytest.mark.parametrize("part", ["bus", "store"])
def test_credentials_of_the_hub_are_refused(part: str, refusal: Text) -> None:
    values = {**APART, part: {**APART[part], "existingSecret": f"hanse-{part}-coordinator"}}
    assert f'{part}.existingSecret: "hanse-{part}-coordinator" has the hub\'s credentials' in refusal(CHART, values)


@pytest.mark.parametrize("missing", ["bus.url", "bus.existingSecret", "store.url", "store.existingSecret"])
def test_a_compensator_chart_asks_by_name_for_what_the_hubs_operator_must_give(missing: str, refusal: Text) -> None:
    part, _, name = missing.partition(".")
    assert f"{missing} is empty" in refusal(CHART, {**APART, part: {**APART[part], name: ""}})


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"minimum": 1}, "minimum"),
        ({"replicas": 3}, "replicas"),
        ({"bus": {"url": "https://b", "existingSecret": "x"}}, "url"),
        ({"resources": {"limits": {"memory": None}}}, "memory"),
        ({"networkPolicy": {"bus": {"cidrs": ["anywhere"]}}}, "cidrs"),
        ({"name": "The Trustee"}, "name"),
    ],
)
@pytest.mark.parametrize("helm", [3, 4])
def test_a_bad_value_is_refused_by_name(values: dict[str, Any], named: str, helm: int, refusal: Text) -> None:
    said = refusal(CHART, {**APART, **values}, helm=helm)
    assert "schema" in said
    assert named in said


def test_the_notes_say_how_to_get_the_public_key(notes: Text) -> None:
    said = notes(CHART, APART)
    assert "kubectl -n hanse exec demo-hanse-compensator-0 -- python -m hanse_compensator key" in said
    assert "not through the hub" in said
    assert "THE SAME PEOPLE" not in said


@pytest.fixture(scope="module")
def in_a_hub(charts: Charts) -> tuple[list[Manifest], str]:
    """Manifests and notes of the compensator as the subchart of a hub that has nothing else."""
    hub = charts.path(CHART).parent / "small-hub"
    (hub / "charts").mkdir(parents=True)
    (hub / "charts" / CHART).symlink_to(charts.path(CHART))
    dependency = {"name": CHART, "alias": "compensator", "version": "0.1.0", "condition": "compensator.enabled"}
    about = {"apiVersion": "v2", "name": "small-hub", "version": "0.1.0", "dependencies": [dependency]}
    (hub / "Chart.yaml").write_text(yaml.safe_dump(about))
    (hub / "values.yaml").write_text("compensator: {enabled: true, hub: {sameRelease: true}}\n")
    done = charts.helm(4, "template", "demo", str(hub), "--namespace", "hanse")
    assert done.returncode == 0, done.stderr
    told = charts.helm(4, "install", "demo", str(hub), "--dry-run=client", "--render-subchart-notes")
    assert told.returncode == 0, told.stderr
    return manifests_of(done.stdout), told.stdout.partition("NOTES:")[2]


def test_a_compensator_in_the_hubs_release_takes_its_addresses_and_secrets(
    in_a_hub: tuple[list[Manifest], str],
) -> None:
    manifests, _ = in_a_hub
    assert container(manifests)["envFrom"] == [{"configMapRef": {"name": "demo-hanse-connection"}}]
    (stateful,) = of_kind(manifests, "StatefulSet").values()
    secrets = {
        one["secret"]["secretName"] for one in stateful["spec"]["template"]["spec"]["volumes"] if "secret" in one
    }
    assert secrets == {"demo-hanse-bus-compensator", "demo-hanse-bus-tls", "demo-hanse-compensator-key"}
    assert stateful["spec"]["template"]["spec"]["serviceAccountName"] == "demo-hanse-compensator"
    (policy,) = of_kind(manifests, "NetworkPolicy").values()
    reached = [rule["to"][0]["podSelector"]["matchLabels"] for rule in policy["spec"]["egress"][1:]]
    assert [one["app.kubernetes.io/component"] for one in reached] == ["nats", "store"]


def test_the_notes_of_a_hub_with_its_own_compensator_say_what_that_gives_up(
    in_a_hub: tuple[list[Manifest], str],
) -> None:
    _, said = in_a_hub
    assert "THE SAME PEOPLE RUN THE HUB AND THE COMPENSATOR" in said


def test_only_the_hubs_chart_may_say_that_it_is_in_the_hubs_release(refusal: Text) -> None:
    assert "hub.sameRelease" in refusal(CHART, {**APART, "hub": {"sameRelease": True}})


def test_a_hub_with_its_own_compensator_has_none_of_several(refusal: Text) -> None:
    said = refusal("hanse", {"compensator": {"enabled": True, "share": {"enabled": True}}})
    assert "install this chart by itself for each of them" in said
