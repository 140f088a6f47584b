"""What holds for every chart with every set of values: both helms render the same, Kubernetes knows every field, pods
are restricted and bounded, and no secret lies where secrets do not belong."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from typing import Any

import kubernetes_validate.utils
import pytest
import yaml

from deploy.charts import CHARTS, Charts, Render, containers, pods
from deploy.value_sets import VALUES

RENDERINGS = [(chart, name) for chart, sets in VALUES.items() for name in sets]
KUBERNETES = ("1.28", "1.31", "1.37")
# Kinds of operators that the schemas of Kubernetes do not have.
FOREIGN = ("monitoring.coreos.com/", "keda.sh/", "cert-manager.io/", "gateway.networking.k8s.io/")
# The jobs that make and remove Secrets speak to the API server.
WITH_TOKEN = frozenset({"keys"})
PRIVATE = re.compile(r"PRIVATE KEY|NKEY SEED|join_[A-Za-z0-9]|\bS[OAU][A-Z2-7]{56}\b")
VALID: set[tuple[str, str]] = set()
SECRET_VARIABLES = frozenset({"HANSE_TOKEN", "HANSE_STORE_ACCESS_KEY", "HANSE_STORE_SECRET_KEY"})

# For each manifest it lists and reads its schemas, of megabytes: once will do.
for name in ("all_versions", "schema_contents"):
    setattr(kubernetes_validate.utils, name, functools.cache(getattr(kubernetes_validate.utils, name)))

every_rendering = pytest.mark.parametrize(("chart", "values"), RENDERINGS, ids=lambda each: each)


@every_rendering
def test_lint_finds_nothing_with_either_helm(chart: str, values: str, charts: Charts, tmp_path: Any) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(json.dumps(VALUES[chart][values]))
    for version in (3, 4):
        done = charts.helm(version, "lint", "--strict", str(charts.path(chart)), "--values", str(file))
        assert done.returncode == 0, done.stdout + done.stderr


@every_rendering
def test_helm_3_and_helm_4_render_the_same(chart: str, values: str, render: Render) -> None:
    def sorted_by_name(helm: int) -> list[Any]:
        rendered = render(chart, VALUES[chart][values], helm=helm)
        return sorted(rendered, key=lambda one: (one["kind"], one["metadata"]["name"]))

    assert sorted_by_name(3) == sorted_by_name(4)


@pytest.mark.parametrize("kube", KUBERNETES)
@every_rendering
def test_kubernetes_knows_every_field(chart: str, values: str, kube: str, render: Render) -> None:
    manifests = render(chart, VALUES[chart][values], kube=f"{kube}.0")
    known = [one for one in manifests if not one["apiVersion"].startswith(FOREIGN)]
    assert len(known) >= 2
    for one in known:
        text = (kube, json.dumps(one, sort_keys=True))
        if text not in VALID:  # sets of values have most manifests in common
            kubernetes_validate.validate(one, kube, strict=True)
            VALID.add(text)


@every_rendering
def test_every_object_of_a_chart_has_a_name_of_its_own_and_labels(chart: str, values: str, render: Render) -> None:
    manifests = render(chart, VALUES[chart][values])
    names = [(one["kind"], one["metadata"]["name"]) for one in manifests]
    assert len(set(names)) == len(names)
    for one in manifests:
        labels = one["metadata"]["labels"]
        assert labels["app.kubernetes.io/part-of"] == "hanse", one["metadata"]
        assert labels["app.kubernetes.io/instance"] == "demo"


@every_rendering
def test_pods_are_restricted(chart: str, values: str, render: Render) -> None:
    for place, pod in pods(render(chart, VALUES[chart][values])):
        assert not {"hostNetwork", "hostPID", "hostIPC", "hostUsers"} & set(pod), place
        context = pod["securityContext"]
        assert context["runAsNonRoot"] is True, place
        assert context["runAsUser"] >= 10_000, place
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, place
        for volume in pod.get("volumes", []):
            allowed = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected"}
            assert set(volume) - {"name"} <= allowed | {"secret"}, f"{place}: {volume}"
        for one in containers(pod):
            own = one["securityContext"]
            assert own["allowPrivilegeEscalation"] is False, place
            assert own["readOnlyRootFilesystem"] is True, place
            assert own["capabilities"] == {"drop": ["ALL"]}, place
            assert not own.get("privileged", False), place


@every_rendering
def test_only_pods_that_need_it_have_a_token_of_the_api_server(chart: str, values: str, render: Render) -> None:
    for manifest in render(chart, VALUES[chart][values]):
        for place, pod in pods([manifest]):
            component = manifest["metadata"]["labels"]["app.kubernetes.io/component"]
            if component not in WITH_TOKEN:
                assert pod["automountServiceAccountToken"] is False, place


@every_rendering
def test_every_container_has_limits_and_every_service_its_probes(chart: str, values: str, render: Render) -> None:
    for place, pod in pods(render(chart, VALUES[chart][values])):
        for one in containers(pod):
            limits = one["resources"]["limits"]
            assert {"cpu", "memory"} <= set(limits), f"{place}: {one['name']}"
        for one in pod["containers"]:
            if place.startswith(("Deployment/", "StatefulSet/", "DaemonSet/")):
                assert {"startupProbe", "readinessProbe", "livenessProbe"} <= set(one), f"{place}: {one['name']}"


@every_rendering
def test_no_password_or_key_is_rendered_outside_of_a_secret(chart: str, values: str, render: Render) -> None:
    manifests = render(chart, VALUES[chart][values])
    for one in manifests:
        if one["kind"] != "Secret":
            assert not PRIVATE.search(json.dumps(one)), f"{one['kind']}/{one['metadata']['name']}"
    for place, pod in pods(manifests):
        for container in containers(pod):
            for variable in container.get("env", []):
                assert variable["name"] not in SECRET_VARIABLES or "valueFrom" in variable, place


@every_rendering
def test_every_mount_has_its_volume(chart: str, values: str, render: Render) -> None:
    for manifest in render(chart, VALUES[chart][values]):
        for place, pod in pods([manifest]):
            claims = manifest["spec"].get("volumeClaimTemplates", [])
            volumes = {one["name"] for one in pod.get("volumes", [])} | {one["metadata"]["name"] for one in claims}
            mounted = {mount["name"] for one in containers(pod) for mount in one.get("volumeMounts", [])}
            assert mounted == volumes, place


@pytest.mark.parametrize("chart", VALUES)
def test_the_schema_names_every_value_and_nothing_else(chart: str) -> None:
    values = yaml.safe_load((CHARTS / chart / "values.yaml").read_text())
    schema = json.loads((CHARTS / chart / "values.schema.json").read_text())
    unknown = set(paths_of_values(values, schema, schema)) - {"enabled", "hanse-common"}
    assert not unknown


@pytest.mark.parametrize("chart", VALUES)
def test_every_value_is_documented(chart: str) -> None:
    lines = (CHARTS / chart / "values.yaml").read_text().splitlines()
    assert list(undocumented(lines)) == []


def paths_of_values(values: Any, schema: dict[str, Any], root: dict[str, Any], path: str = "") -> Iterator[str]:
    """Where values and the closed objects of a schema differ."""
    if "$ref" in schema:
        schema = root["definitions"][schema["$ref"].rpartition("/")[2]]
    if schema.get("additionalProperties") is not False or not isinstance(values, dict) or values == {}:
        return  # not closed; or such as a pod's affinity, which is the user's to fill
    properties = schema["properties"]
    for name in {*values} - {*properties}:
        yield f"{path}{name} is not in the schema"
    for name in {*properties} - {*values}:
        # Images and pools take from each other, and limits may have claims: not all of their fields have defaults.
        if path.rstrip(".").lower().rpartition(".")[2] not in {"image", "poolimage", "resources", "poolresources"}:
            yield f"{path}{name}"
    for name in {*values} & {*properties}:
        yield from paths_of_values(values[name], properties[name], root, f"{path}{name}.")


def undocumented(lines: list[str]) -> Iterator[str]:
    """Values without a comment: beside them, in the lines above them, or at what they stand in."""
    said_at: dict[int, bool] = {}  # of what the line stands in, by indentation
    above = False
    for line in lines:
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            above = bool(stripped)
            continue
        if stripped.startswith("-"):
            continue
        depth = len(line) - len(line.lstrip())
        said_at = {place: said for place, said in said_at.items() if place < depth}
        said = above or " #" in line or any(said_at.values())
        if not (said or stripped.endswith(":")):
            yield line
        # A comment above speaks for the lines of a paragraph.
        said_at[depth] = said
        above = above and not stripped.endswith(":")
