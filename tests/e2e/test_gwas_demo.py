"""The study demonstration, with its servers, on the real data: federated is pooled, and the report says how it went."""

from __future__ import annotations

import json
from functools import partialmethod
from pathlib import Path

import pytest

from hanse.demo.gwas import GwasScenario
from hanse.demo.gwas_report import emit_report
from hanse.embedded.deployment import Deployment
from hanse.embedded.nursery import Nursery
from hanse.embedded.processes import Child, ChildSpec, Supervisor

_start = Supervisor.start


def forked(self: Supervisor, spec: ChildSpec, others: Nursery | None = None, *, sites: Nursery) -> Child:
    """A site is forked from the session's nursery; of the others each as it is."""
    return _start(self, spec, sites if spec.name.startswith("datapod-") else others)


@pytest.mark.timeout(300)
async def test_three_tests_of_hapmap1_equal_the_pooled_analysis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Deployment.sites_from is not None
    async with Nursery(Deployment.sites_from, tmp_path / "nursery.log") as nursery:
        monkeypatch.setattr(Supervisor, "start", partialmethod(forked, sites=nursery))
        outcome = await GwasScenario.create(tmp_path / "demo", seed=1, names=("hapmap1",)).play(quiet=True)
    assert {one["test"] for one in outcome.compared} == {"chi_square", "linear", "logistic"}
    for one in outcome.compared:
        federated, _ = one["analyses"]["federated"]
        assert federated["pearson"] > 0.999999
        assert federated["largest"] < 1e-3
        assert (federated["missed"], federated["false"]) == (0, 0)
        if one["test"] != "logistic":  # PLINK computes logistic regression in single precision
            assert one["printed"]["snps"] == 0
        folder = tmp_path / "demo" / "results" / "hapmap1" / one["test"]
        report = (folder / "report.html").read_text()
        assert "3 cohorts (bremen, hamburg, luebeck)" in report
        assert "compensator who sees no answers" in report
        steps = json.loads((folder / "run.json").read_text())["steps"]
        assert [name for name, step in steps.items() if not step["masked"]] == ["open"]
        assert all(step["up"] > 0 for step in steps.values())
    assert all(size > 0 for size in outcome.sent.values())
    emit_report(outcome)
