"""The jobs by which the hub's chart looks after its state: which there are, when, and how they are called."""

from __future__ import annotations

import os
from typing import Any

import pytest

from deploy.charts import Render, containers, of_kind, pods
from deploy.hub_arrows import arrows_out, policies
from deploy.value_sets import EVERYTHING, PRODUCTION
from hanse_operations.__main__ import main as deploy


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
    assert any(arrow.source == "restore" for arrow in arrows_out(policies(render("hanse"))))


def test_an_upgrade_restores_nothing_whatever_was_left_in_the_values(render: Render) -> None:
    values = {"backup": {"restore": {"from": "newest", "force": True}}}

    def jobs(**options: Any) -> list[str]:
        return [name for name in of_kind(render("hanse", values, **options), "Job") if "-restore-" in name]

    assert len(jobs()) == 1
    assert jobs(upgrade=True) == []
