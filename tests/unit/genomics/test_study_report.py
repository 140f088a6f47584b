"""The report: what is on it, what is drawn, and that it needs nothing else."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from hanse_fabric.errors import HanseError
from hanse_genomics.reasons import Reason
from hanse_genomics.report import figures, write_report
from hanse_genomics.report.page import page
from hanse_genomics.report.points import KEPT_ABOVE, genome, quantiles, thinned
from hanse_genomics.report.shared import shared_by
from hanse_genomics.report.tables import size_text, top_hits
from hanse_genomics.results import Results
from hanse_schemas.study import Structure, Study
from made_results import made_results

SUMMARY = {
    "cohorts": {"north": {"snps": 31, "flipped": 2}, "<b>east</b>": {"snps": 30, "flipped": 0}},
    "samples": {"all": 2050, "tested": 2047, "cases": 927, "controls": 1120},
    "snps": {"common": 30, "tested": 29, "left_out": 1},
    "reasons": {"monomorphic": 1},
    "notes": ["rs7: A/C in north, A/G in east"],
}
RUN = {
    "run": "r-1", "project": "lungs", "mode": "compensator", "traffic": {"north": {"up": 2_500_000, "down": 1000}},
    "steps": {"chi_square": {"computations": 3, "masked": True, "up": 2_500_000, "down": 1000}},
}  # fmt: skip


def results(test: str = "chi_square") -> Results:
    rng = np.random.default_rng(1)
    log10_p = np.log10(rng.random(30))
    log10_p[7], log10_p[9] = -400.0, np.nan
    reason = np.zeros(30, np.uint8)
    reason[9] = Reason.MONOMORPHIC
    return made_results(
        test, 30, log10_p=log10_p, p=10.0**log10_p, maf=np.full(30, 0.2), odds_ratio=np.full(30, 2.0),
        beta=np.full(30, np.log(2.0)), se=np.full(30, 0.1), chisq=np.full(30, 9.9), reason=reason, summary=SUMMARY,
    )  # fmt: skip


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.alts: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "srcset", "href", "action", "data")]
        if tag == "img":
            self.alts.append(found.get("alt") or "")


def test_the_report_is_one_file_without_scripts_or_links(tmp_path: Path) -> None:
    text = write_report(results(), tmp_path, RUN).read_text()
    parser = _Links()
    parser.feed(text)
    assert len(parser.links) == 4
    assert all(link.startswith("data:image/png;base64,") for link in parser.links)
    assert not parser.tags & {"script", "link", "iframe", "object"}
    assert not re.search(r"https?:|url\(|@import", text)
    assert (tmp_path / "manhattan.pdf").read_bytes().startswith(b"%PDF")
    assert (tmp_path / "qq.png").read_bytes().startswith(b"\x89PNG")
    assert "prefers-color-scheme: dark" in text
    assert "1 are significant at 5e-8" in parser.alts[0]
    assert "Genomic inflation" in parser.alts[1]


def test_the_report_says_what_was_found_shared_and_left_out() -> None:
    text = page(results(), RUN, {})
    for said in (
        "927 cases", "Genomic inflation", "rs7", "1e-400", "1.644 to 2.433", "strand flips", "2.5 MB",
        "left out: monomorphic", "masked", "in clear", "compensator who sees no answers", "project lungs",
        "A/C in north", "REASON",
    ):  # fmt: skip
        assert said in text, said
    assert "<b>east</b>" not in text
    assert "&lt;b&gt;east&lt;/b&gt;" in text


def test_a_report_is_written_also_where_no_snp_was_tested(tmp_path: Path) -> None:
    nothing = made_results("linear", 3, p=np.full(3, np.nan), log10_p=np.full(3, np.nan))
    text = write_report(nothing, tmp_path).read_text()
    assert "0 of 3 SNPs were tested" in text
    assert "no SNP was tested" in text
    assert "Bytes were not counted" in text
    write_report(made_results("trend", 0), tmp_path)


@pytest.mark.parametrize("test", ["chi_square", "trend", "linear", "logistic"])
def test_the_top_hits_begin_with_the_smallest_p_and_leave_out_what_was_not_tested(test: str) -> None:
    table = top_hits(results(test), 29)
    names = [row[0] for row in table.rows]
    assert names[0] == "rs7"
    assert len(names) == 29
    assert "rs9" not in names
    expected = {"linear": "0.4972 to 0.8891", "trend": ""}.get(test, "1.644 to 2.433")
    assert table.rows[0][6] == expected


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(HanseError, match="matplotlib") as caught:
        figures.manhattan(results(), figures.LIGHT)
    assert "hanse-genomics[report]" in caught.value.hint


def test_every_significant_snp_is_drawn_and_the_others_once_a_cell() -> None:
    rng = np.random.default_rng(2)
    x, y = rng.random(300_000), rng.exponential(0.434, 300_000)
    y[[5, 77]] = 9.0, np.nan
    drawn = thinned(x, y)
    assert set(np.flatnonzero(y > KEPT_ABOVE)) <= set(drawn)
    assert 77 not in drawn
    assert len(drawn) < 100_000
    assert len(thinned(np.array([]), np.array([]))) == 0


def test_chromosomes_stand_side_by_side_in_order() -> None:
    place = genome(np.array([1, 1, 2, 23], np.int8), np.array([100, 300, 50, 7]))
    assert (np.diff(place.x) > 0).all()
    assert place.code == [1, 2, 23]
    assert place.centres == sorted(place.centres)


def test_uniform_p_values_lie_in_the_band() -> None:
    p = (np.arange(1, 20_001) - 0.5) / 20_000
    found = quantiles(-np.log10(p))
    np.testing.assert_allclose(found.observed, found.expected)
    assert (found.low <= found.observed).all()
    assert (found.observed <= found.high).all()
    assert len(found.expected) < 2000


def test_only_the_list_of_snps_is_in_clear() -> None:
    tests = get_args(Study.model_fields["test"].annotation)
    assert len(tests) == 4
    for test in tests:
        said = shared_by(Study(test=test))
        assert [one.masked for one in said].count(False) == 1
        assert not said[0].masked
    names = [one.step for one in shared_by(Study(test="linear", structure=Structure(components=2)))]
    assert "principal components" in names
    with pytest.raises(AssertionError, match="hearsay"):
        shared_by(Study(test="linear").model_copy(update={"test": "hearsay"}))


def test_sizes_are_read_by_people() -> None:
    assert [size_text(size) for size in (0, 999, 1000, 2_500_000, 11_060_000_000)] == [
        "0 B", "999 B", "1 kB", "2.5 MB", "11.1 GB",
    ]  # fmt: skip
