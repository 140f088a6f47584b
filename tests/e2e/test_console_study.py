"""A study's results in a real browser: plots that zoom, hits that are searched, quality control."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect

from console_browser import Watched, axe_script, chromium
from console_served import served
from hanse_fabric.tensors.file import encode_tensors, layout_like
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_genomics.files import text
from hanse_genomics.results.table import summary_arrays
from hub_api import Api

SNPS, HIT = 40_000, 12_345
STUDY = {"workflow": "association_study", "study": {"test": "logistic", "covariates": ["AGE"]}, "name": "lungs"}
SUMMARY = {
    "study": STUDY["study"], "lambda": 1.013, "samples": {"all": 2050, "tested": 2047, "cases": 927, "controls": 1120},
    "snps": {"common": SNPS + 12, "tested": SNPS, "left_out": 12}, "reasons": {"monomorphic": 12},
    "cohorts": {"north": {"snps": 60_000, "duplicates": 3}, "south": {"snps": 58_000, "duplicates": 0}},
    "notes": ["rs7: A/C in north, A/G in <img src=x onerror='window.owned = 1'>south"],
}  # fmt: skip


async def with_study(api: Api) -> str:
    """A project with a study that has completed; returns a token of a one-time link for its owner."""
    key = await api.make_key("operator")
    schema = {"kind": "genotypes", "phenotypes": ["TRAIT"], "covariates": ["AGE"]}
    await api.ok("POST", "/v1/projects", key, {"name": "gwas", "schema": schema})
    run = (await api.ok("POST", "/v1/projects/gwas/runs", key, {"job": STUDY}))["run"]
    draw = np.random.default_rng(3)
    log10_p = np.log10(draw.random(SNPS))
    log10_p[HIT - 4 : HIT + 5] = [-5, -6, -7, -9, -11.5, -8, -7, -6, -5]
    each = SNPS // 22 + 1
    results: dict[str, np.ndarray] = {
        "chromosome": (1 + np.arange(SNPS) // each).astype(np.int8),
        "position": (np.arange(SNPS) % each * 40_000 + 1).astype(np.int64),
        "name": text.pack(f"rs{number}" for number in range(SNPS)),
        "first": text.pack(["A"] * SNPS), "second": text.pack(["G"] * SNPS), "minor": np.zeros(SNPS, np.uint8),
        "reason": np.zeros(SNPS, np.uint8), "p": 10.0**log10_p, "log10_p": log10_p, "beta": draw.normal(0, 0.2, SNPS),
        "se": np.full(SNPS, 0.05), "maf": draw.uniform(0.05, 0.5, SNPS),
    }  # fmt: skip
    outputs = {}
    for name, arrays in (("results", results), ("summary", summary_arrays(SUMMARY))):
        data = bytes(encode_tensors(layout_like(arrays), arrays))
        ref = ref_of_bytes(data, key=f"models/gwas/{run}/outputs/{name}")
        api.hub.store.put(ref.key or "", data)
        outputs[name] = ref.model_dump(mode="json")
    done = {"outputs": outputs, "state": "completed"}
    await api.hub.buckets.runs.change(lambda old: old.model_copy(update=done), project="gwas", run=run)
    made = await api.ok("POST", "/v1/people", key, {"name": "ada", "role": "owner"})
    return str(made["token"])


@pytest.mark.timeout(240)
def test_a_study_is_looked_at_from_the_whole_genome_to_one_snp(tmp_path: Path) -> None:
    with chromium() as browser, served(tmp_path / "store", with_study) as console:
        watched = Watched(browser, console.url, axe_script(tmp_path))
        page = watched.page
        watched.enter(console.made)
        watched.go("/projects/gwas")
        page.get_by_role("link", name="lungs").click()
        page.get_by_role("link", name="Manhattan plot").click()
        page.get_by_role("img", name=re.compile("Manhattan plot of 40,000 SNPs: 3 of all are significant")).wait_for()
        page.get_by_role("img", name=re.compile("Quantile-quantile plot.*1.013")).wait_for()
        best = page.get_by_role("region", name="Hits").get_by_role("row").nth(1)
        assert best.get_by_role("cell").nth(1).inner_text() == f"rs{HIT}"
        assert best.get_by_role("cell").last.locator("xpath=preceding-sibling::*[1]").inner_text() == "3.16e-12"
        watched.look("study")

        # A dot under the pointer says what it is; of the other plot most lie on the line, as nothing matters there.
        quantiles = page.get_by_role("img", name=re.compile("Quantile-quantile plot"))
        quantiles.scroll_into_view_if_needed()
        box = quantiles.locator(".u-over").bounding_box()
        assert box is not None
        said = quantiles.locator("xpath=..").locator(".pointed")
        steep = np.log10(SNPS + 1) * 1.03 / (11.5 * 1.05)  # of the line, as the axes are scaled
        for share in (0.05, 0.1, 0.3):
            page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] * (1 - share * steep))
            expected, observed = map(float, re.findall(r"[0-9.]+", said.inner_text()))
            assert abs(expected - observed) < 0.2

        # From the whole genome to a part of it by dragging, and back.
        page.locator(".chart .u-over").first.scroll_into_view_if_needed()
        plot = page.locator(".chart .u-over").first.bounding_box()
        assert plot is not None
        page.mouse.move(plot["x"] + 5, plot["y"] + 50)
        page.mouse.down()
        page.mouse.move(plot["x"] + 30, plot["y"] + 60, steps=4)
        page.mouse.up()
        page.get_by_role("img", name=re.compile("of chromosome 1:")).wait_for()
        page.get_by_role("button", name="All", exact=True).first.click()
        page.get_by_role("img", name=re.compile("Manhattan plot of 40,000 SNPs:")).wait_for()
        best.get_by_role("button", name="Show").click()
        page.get_by_text(re.compile("All [0-9]+ SNPs of this part are drawn")).wait_for()

        page.get_by_label("Search").fill("RS1234")
        page.get_by_text("1 to 11 of 11").wait_for()
        page.get_by_label("Search").fill("nothing")
        page.get_by_text("No SNP is called so").wait_for()
        page.get_by_label("Search").fill("7:1-200000")
        page.get_by_text("1 to 5 of 5").wait_for()
        expect(page.get_by_role("region", name="SNPs").get_by_text("left out: monomorphic")).to_have_count(1)
        expect(page.get_by_text("<img src=x")).to_have_count(1)
        assert page.evaluate("window.owned") is None
        assert watched.errors == []
