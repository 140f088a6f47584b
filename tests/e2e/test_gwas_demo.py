"""The study demonstration, with its servers, on the real data: federated is pooled, and the report says how it went."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hanse.demo.gwas import GwasScenario
from hanse.demo.gwas_report import emit_report


@pytest.mark.timeout(300)
async def test_three_tests_of_hapmap1_equal_the_pooled_analysis(tmp_path: Path) -> None:
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
