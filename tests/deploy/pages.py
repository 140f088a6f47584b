"""What the pages show: fenced blocks, indented lines, and what stands in backquotes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from deploy.charts import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROJECTS = sorted((ROOT / "libs/hanse/src/hanse/new").rglob("README.md.template"))
NOTES = sorted((ROOT / "charts").glob("*/templates/NOTES.txt"))
_FENCE = re.compile(r"( *)```(\w*)$")
_TYPED = {".md": r" {4,}\S", ".template": r" {4,}\S", ".txt": " {3,}(kubectl|helm|export|hanse) "}


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: `ordinal` counts those of the page that are of one language, from 0."""

    page: str
    line: int
    language: str
    ordinal: int
    heading: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def name_of(page: Path) -> str:
    """As people name it: from the checkout on."""
    return str(page.relative_to(ROOT))


def parts(page: Path) -> tuple[list[Block], list[tuple[int, str]]]:
    """(fenced blocks, the other lines with their numbers)."""
    blocks: list[Block] = []
    others: list[tuple[int, str]] = []
    heading, lines = "", enumerate(page.read_text().splitlines(), 1)
    for number, line in lines:
        fence = _FENCE.match(line)
        if fence is None:
            heading = line.lstrip("# ") if line.startswith("#") else heading
            others.append((number, line))
            continue
        end = f"{fence[1]}```"
        inside = []
        for _, one in lines:
            if one == end:
                break
            inside.append(one.removeprefix(fence[1]))
        ordinal = sum(block.language == fence[2] for block in blocks)
        blocks.append(Block(name_of(page), number, fence[2], ordinal, heading, "\n".join(inside) + "\n"))
    return blocks, others


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page."""
    return parts(page)[0]


def indented(page: Path) -> Iterator[str]:
    """Each run of indented lines, which pages have for what is typed."""
    run: list[str] = []
    for _, line in [*parts(page)[1], (0, "")]:
        if re.match(_TYPED[page.suffix], line):
            run.append(line.strip())
        elif run:
            yield "\n".join(run) + "\n"
            run = []


def in_backquotes(page: Path) -> Iterator[str]:
    """What stands in backquotes within the text; it may go on in the next line."""
    prose = "\n".join("" if re.match(r" {4}", line) else line for _, line in parts(page)[1])
    for found in re.finditer(r"(?<!`)`([^`]+)`(?!`)", prose):
        yield " ".join(found[1].split())
