"""What `make docs` adds to the pages of docs/: README and changelog as pages, and the alerts in the navigation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parents[1]
_ITEM = re.compile(r"([-*]|\d+\.) ")
_LINK = re.compile(r"(\]\()(?!https?://|#)([^)\s]+)(\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the runbooks in the navigation."""
    pages = sorted((ROOT / "docs" / "runbooks").glob("*.md"))
    listed = [{page.stem: f"runbooks/{page.name}"} for page in pages]
    config.nav = [{"Alerts": listed} if "Alerts" in part else part for part in config.nav or []]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the two pages that lie beside docs/, with their links as they are seen from there."""
    from mkdocs.structure.files import File

    for name, source in (("index.md", "README.md"), ("CHANGELOG.md", "CHANGELOG.md")):
        text = _LINK.sub(_moved, (ROOT / source).read_text())
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Have the pages read as where they are read otherwise: a list may follow a paragraph without an empty line."""
    return "\n".join(_apart(markdown.replace("](../CHANGELOG.md", "](CHANGELOG.md").split("\n")))


def _apart(lines: Iterable[str]) -> Iterator[str]:
    """The lines, with an empty one before each list that begins right after a paragraph."""
    before, in_code = "", False
    for line in lines:
        in_code ^= line.lstrip().startswith("```")
        if not in_code and _ITEM.match(line) and before and before[0] not in " #|" and not _ITEM.match(before):
            yield ""
        yield line
        before = line


def _moved(link: re.Match[str]) -> str:
    return f"{link[1]}{link[2].removeprefix('docs/')}{link[3]}"
