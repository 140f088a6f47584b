"""Sources are cited by authors and year, and each has its row in docs/references.md."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
ROWS = (ROOT / "docs/references.md").read_text().splitlines()
NAME, YEAR = r"([A-Z][\w-]+)", r"((?:19|20)\d\d)"
CITED = (
    re.compile(rf"{NAME} et al\.,? \(?{YEAR}"),
    re.compile(rf"{NAME} and [A-Z][\w-]+,? \(?{YEAR}"),
    re.compile(rf"\({NAME},? {YEAR}[,;:)]"),
)


def citations() -> dict[tuple[str, str], str]:
    """By author and year, a file that cites the work."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py", "*.md", "examples"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found: dict[tuple[str, str], str] = {}
    for path in filter(Path.is_file, (ROOT / name for name in listed.stdout.splitlines())):
        text = " ".join(path.read_text().split())
        found |= {cited: str(path) for pattern in CITED for cited in pattern.findall(text)}
    return found


def test_every_cited_work_has_its_row_in_the_references() -> None:
    cited = citations()
    assert len(cited) > 40
    missing = {work: path for work, path in cited.items() if not any(work[0] in row and work[1] in row for row in ROWS)}
    assert missing == {}
