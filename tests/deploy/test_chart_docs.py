"""The values and commands in the docs are taken by the charts, as they stand there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from deploy.charts import ROOT, Charts, Render, manifests_of, of_kind, pods
from deploy.kube_tools import find_tool
from hanse_datapod.policy.site_policy import load_policy


def section(page: str, title: str) -> str:
    """The text below a heading, up to the next of its depth."""
    text = (ROOT / "docs" / page).read_text()
    heading = re.search(rf"^(#+) {re.escape(title)}\n", text, re.MULTILINE)
    assert heading is not None, title
    below = text[heading.end() :]
    following = re.search(rf"^#{{1,{len(heading[1])}}} ", below, re.MULTILINE)
    return below[: following.start()] if following else below


def yaml_blocks(text: str) -> list[Any]:
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]


def test_a_site_is_installed_with_the_values_of_the_docs(render: Render, tmp_path: Path) -> None:
    site, pools = yaml_blocks(section("site-administrator.md", "On Kubernetes"))
    manifests = render("hanse-datapod", {**site, **pools}, name="ward")
    assert set(of_kind(manifests, "Deployment")) == {f"ward-hanse-pool-{one['name']}" for one in pools["pools"]}
    (config,) = of_kind(manifests, "ConfigMap").values()
    (tmp_path / "policy.yaml").write_text(config["data"]["policy.yaml"])
    assert load_policy(tmp_path / "policy.yaml").masking.required


def test_a_compensator_is_installed_by_the_command_of_the_docs(charts: Charts) -> None:
    text = section("operator.md", "The compensator, run apart")
    (command,) = re.findall(r"^    helm install (.*?[^\\])\n", text, re.MULTILINE | re.DOTALL)
    name, package, *options = shlex.split(command.replace("\\\n", " "))
    assert "hanse-compensator-" in package
    done = charts.helm(4, "template", name, str(charts.path("hanse-compensator")), *options)
    assert done.returncode == 0, done.stderr
    manifests = manifests_of(done.stdout)
    (stateful,) = of_kind(manifests, "StatefulSet")
    assert f"exec {stateful}-0 -- python -m hanse_compensator key" in text
    made = dict(re.findall(r"create secret generic (\S+) (.*)", text))
    for _, pod in pods(manifests):
        for volume in pod["volumes"]:
            if "secret" in volume:
                assert volume["secret"]["secretName"] in made
                for item in volume["secret"]["items"]:
                    assert f"--from-file={item['key']}" in made[volume["secret"]["secretName"]]


def test_after_a_disaster_the_commands_of_the_docs_stop_the_services_restore_and_start_them(
    charts: Charts, tmp_path: Path
) -> None:
    text = section("operator.md", "Backup, disaster recovery")
    commands = [command.partition(" | ")[0] for command in re.findall(r"`(helm [^`]*CHART[^`]*)`", text)]
    (tmp_path / "values.yaml").write_text("backup: {enabled: true}\n")
    rendered = []
    for command in commands:
        words = shlex.split(command.replace("values.yaml", str(tmp_path / "values.yaml")))
        options = words[words.index("CHART") + 1 :]
        done = charts.helm(
            4, "template", "hub", str(charts.path("hanse")), *(word for word in options if word != "--wait")
        )
        assert done.returncode == 0, done.stderr
        rendered.append(manifests_of(done.stdout))
    stopped, restored, started = rendered

    def replicas(manifests: list[Any], kind: str) -> dict[str, int]:
        return {name: one["spec"]["replicas"] for name, one in of_kind(manifests, kind).items()}

    # The console, too: it is never ready without a coordinator, and helm waits.
    services = ("aggregator", "console", "model-registry")
    assert replicas(stopped, "Deployment") == {f"hub-hanse-{name}": 0 for name in services}
    assert replicas(stopped, "StatefulSet") == {"hub-hanse-coordinator": 0, "hub-hanse-nats": 3, "hub-hanse-store": 1}
    assert min(replicas(started, "Deployment").values()) > 0
    assert min(replicas(started, "StatefulSet").values()) > 0
    (job,) = of_kind(restored, "Job").values()
    assert job["metadata"]["labels"]["app.kubernetes.io/component"] == "restore"


def test_the_secrets_of_gitops_are_those_that_the_chart_asks_for(charts: Charts, tmp_path: Path) -> None:
    (command,) = re.findall(
        r"^    (python -m hanse_operations secrets --out .*?[^\\])\n\n",
        section("operator.md", "On Kubernetes"),
        re.MULTILINE | re.DOTALL,
    )
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "helm").symlink_to(find_tool("helm4") or "")
    (tmp_path / "values.yaml").write_text("secrets: {create: false}\n")
    text = command.replace("CHART", str(charts.path("hanse"))).replace("python -m", f"{sys.executable} -m")
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(
        ["bash", "-c", text], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    written = {path.stem: yaml.safe_load(path.read_text()) for path in (tmp_path / "secrets").iterdir()}
    values = str(tmp_path / "values.yaml")
    rendered = charts.helm(4, "template", "hub", str(charts.path("hanse")), "-n", "hanse", "--values", values)
    manifests = manifests_of(rendered.stdout)
    assert not any(each["metadata"]["labels"]["app.kubernetes.io/component"] == "keys" for each in manifests)
    for place, pod in pods(manifests):
        for volume in pod.get("volumes", []):
            for source in [volume, *volume.get("projected", {}).get("sources", [])]:
                secret = source.get("secret")
                if secret is not None:
                    made = written[secret.get("secretName") or secret["name"]]
                    assert {item["key"] for item in secret.get("items", [])} <= set(made["data"]), place
                    assert made["metadata"]["namespace"] == "hanse"
