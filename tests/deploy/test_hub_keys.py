"""Which pods of the hub's chart have which secrets and rights, and the job that makes the secrets."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from deploy.charts import Render, containers, of_kind, pod_of, pods
from deploy.value_sets import EVERYTHING, FEDERATED
from hanse_operations.secrets.wanted import Wishes, names, wanted


def test_the_console_has_no_key_but_the_secret_by_which_the_coordinator_believes_it(render: Render) -> None:
    manifests = render("hanse", FEDERATED)
    pod = pod_of(manifests, "Deployment", "demo-hanse-console")
    assert [volume for volume in pod["volumes"] if "emptyDir" not in volume] == []
    assert "envFrom" not in pod["containers"][0], "it is told of neither bus nor store"
    ref = {"secretKeyRef": {"name": "demo-hanse-proxy-secret", "key": "proxy_secret", "optional": True}}
    holders = [place for place, one in pods(manifests) for container in one["containers"]
               if ref in [each.get("valueFrom") for each in container.get("env", [])]]  # fmt: skip
    assert sorted(holders) == ["Deployment/demo-hanse-console", "StatefulSet/demo-hanse-coordinator"]
    assert wanted({}, Wishes(), datetime.now(UTC))["proxy-secret"]["proxy_secret"]


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
    spec = pod_of(render("hanse"), "StatefulSet", "demo-hanse-coordinator")
    (authority,) = [one["secret"] for one in spec["volumes"] if one["name"] == "authority"]
    assert {item["path"] for item in authority["items"]} == {
        "account.pub", "region-hub.pub", "region-hub-signer.seed", "signer.seed", "system.seed",
    }  # fmt: skip
    others = [pod for place, pod in pods(render("hanse", FEDERATED)) if place != "StatefulSet/demo-hanse-coordinator"]
    assert "authority" not in json.dumps(others)


def test_the_coordinator_has_what_signs_tokens_of_each_region_and_no_more(render: Render) -> None:
    made = render("hanse", EVERYTHING)
    spec = pod_of(made, "StatefulSet", "demo-hanse-coordinator")
    (authority,) = [one["secret"] for one in spec["volumes"] if one["name"] == "authority"]
    given = {item["path"] for item in authority["items"]}
    regions = {f"region-{region}{what}" for region in ("hub", "eu", "us") for what in (".pub", "-signer.seed")}
    assert given == {"account.pub", "signer.seed", "system.seed"} | regions
    (container,) = spec["containers"]
    (urls,) = [one["value"] for one in container["env"] if one["name"] == "HANSE_BUS_REGION_URLS"]
    assert urls == "eu=tls://leaf.eu.example.org:4222"
    (keys,) = pod_of(made, "Job", "demo-hanse-keys")["containers"]
    asked = [word.removeprefix("--region=") for word in keys["args"] if word.startswith("--region=")]
    secrets = wanted({}, Wishes(regions=asked), datetime.now(UTC))["authority"]
    assert given <= secrets.keys()


def test_the_certificate_of_the_bus_is_for_every_name_that_it_is_reached_by(render: Render) -> None:
    values = {
        "nats": {"publicUrl": "tls://bus.example.org:4222,tls://bus2.example.org:4222"},
        "tls": {"hosts": ["other.example.org"]},
    }
    (keys,) = pod_of(render("hanse", values), "Job", "demo-hanse-keys")["containers"]
    (hosts,) = [each for each in keys["args"] if each.startswith("--hosts=")]
    told = set(hosts.removeprefix("--hosts=").split(","))
    assert {"demo-hanse-nats", "*.demo-hanse-nats-pods", "demo-hanse-nats.hanse.svc.cluster.local", "localhost"} <= told
    assert {"bus.example.org", "bus2.example.org", "other.example.org"} <= told
