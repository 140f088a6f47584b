"""The values and commands in the docs are taken by the charts, as they stand there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import yaml
from charts import ROOT, Charts, Render, manifests_of, of_kind, pods

from hanse_datapod.policy import load_policy


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
