"""The network policies of the hub's chart are the arrows of the code."""

from __future__ import annotations

from deploy.charts import Render, of_kind, templates
from deploy.hub_arrows import arrows_in, arrows_of_code, arrows_out, chosen, policies
from deploy.value_sets import FEDERATED, PRODUCTION


def test_network_policies_are_the_arrows_of_the_code(render: Render) -> None:
    rendered = policies(render("hanse", FEDERATED))
    assert arrows_out(rendered) == arrows_of_code()
    assert arrows_in(rendered) == arrows_of_code()


def test_arrows_to_what_is_not_in_the_release_leave_it_by_the_port_of_its_address(render: Render) -> None:
    rendered = {one["metadata"]["name"]: one for one in policies(render("hanse", PRODUCTION))}
    assert {arrow.target for arrow in arrows_out(list(rendered.values()))} == {"coordinator"}
    speakers = {"bus": {arrow.source for arrow in arrows_of_code() if arrow.target == "nats"}}
    speakers["store"] = {arrow.source for arrow in arrows_of_code() if arrow.target == "store"} - {"state"}
    for what, port in (("bus", 4222), ("store", 443)):
        policy = rendered[f"demo-hanse-out-{what}"]
        assert set(chosen(policy)) == speakers[what] - {"compensator", "nats"}
        assert [rule["ports"] for rule in policy["spec"]["egress"]] == [[{"protocol": "TCP", "port": port}]]


def test_network_policies_deny_every_pod_of_the_release_what_no_policy_allows(render: Render) -> None:
    rendered = {one["metadata"]["name"]: one["spec"] for one in policies(render("hanse"))}
    deny = rendered["demo-hanse-deny"]
    assert deny["policyTypes"] == ["Ingress", "Egress"]
    assert not {"ingress", "egress"} & set(deny)
    release = {"app.kubernetes.io/name": "hanse", "app.kubernetes.io/instance": "demo"}
    assert deny["podSelector"] == {"matchLabels": release}
    for place, pod in templates(render("hanse", FEDERATED)):
        assert release.items() <= pod["metadata"]["labels"].items(), place


def test_only_the_job_that_makes_keys_reaches_the_api_server(render: Render) -> None:
    ports = {443, 6443}
    found = {}
    for one in policies(render("hanse")):
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
