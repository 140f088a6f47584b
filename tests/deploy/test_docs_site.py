"""`make docs`: every page is in the site and found by its search, links lead somewhere, no other host is asked."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.charts import ROOT


def build(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder), *options], cwd=ROOT, capture_output=True,
        text=True, timeout=300, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_there_and_found_by_the_search(site: Path) -> None:
    pages = {str(path.relative_to(ROOT / "docs").with_suffix(".html")) for path in (ROOT / "docs").rglob("*.md")}
    pages |= {"index.html", "CHANGELOG.html"}
    found = {
        entry["location"].partition("#")[0]
        for entry in json.loads((site / "search/search_index.json").read_text())["docs"]
    }
    assert pages <= found | ({"index.html"} if "" in found else set())
    first = (site / "index.html").read_text()
    assert "Federated learning for organisations" in first
    assert 'href="privacy.html"' in first, "links of the README are those of the site"
    assert first.index('href="first-afternoon.html"') < first.index('href="owner.html"'), "what one begins with"
    assert first.index('href="owner.html"') < first.index('href="job-keys.html"'), "tutorials first"


def test_nothing_is_asked_of_other_hosts(site: Path) -> None:
    loads = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=[\"']?(?:https?:)?//[^\"' >]+")
    assert [found for page in site.rglob("*.html") for found in loads.findall(page.read_text())] == []
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert not re.search(r"(?:url\(|@import )[\"']?(?:https?:)?//", styles)


def test_lists_are_lists_where_no_empty_line_is_before_them(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not re.search(r"<p>[^<]*\n- ", page.read_text()), page


def test_a_link_that_leads_nowhere_ends_the_build(tmp_path: Path) -> None:
    pages = tmp_path / "docs"
    pages.mkdir()
    (pages / "privacy.md").write_text("# Privacy\n\n[nowhere](nothing.md) [none](#no-such-place)\n")
    config = (ROOT / "mkdocs.yml").read_text().replace("packaging/docs_site.py", str(ROOT / "packaging/docs_site.py"))
    (tmp_path / "mkdocs.yml").write_text(config[: config.index("\nnav:\n")] + "\nnav: [privacy.md]\n")
    done = build(tmp_path / "site", "--config-file", str(tmp_path / "mkdocs.yml"))
    assert done.returncode == 1
    assert "nothing.md" in done.stderr
    assert "no-such-place" in done.stderr
