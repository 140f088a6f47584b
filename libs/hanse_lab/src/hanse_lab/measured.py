"""Records of benchmarks: what was measured by a command of its own, for the claims table and the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from hanse_fabric.durable import write_durably
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.frozen import Frozen
from hanse_fabric.messages.explained import explain
from hanse_lab.tables import markdown

Finding = Literal["reproduced", "in part", "not reproduced", "cannot be told", "not attempted"]


class MeasuredClaim(Frozen):
    """What was found of a claim, in words with figures."""

    says: str
    finding: Finding
    found: str


class Measured(Frozen):
    """A benchmark's record.

    Attributes:
        command: that wrote it.
        about: what was asked, and on what.
        table: rows of cells, the first of titles.
        picture: file name of an SVG beside the records; None: there is none.
        figures: all that was measured.
    """

    title: str
    command: str
    about: str
    claims: tuple[MeasuredClaim, ...]
    table: tuple[tuple[str, ...], ...] = Field(min_length=2)
    picture: str | None = None
    figures: dict[str, Any] = {}


def write_measured(path: Path, record: Measured) -> None:
    """Write a record."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_durably(path, record.model_dump_json(indent=1).encode() + b"\n", mode=0o644)


def read_measured(folder: Path) -> dict[str, Measured]:
    """All records of a folder, by their files' names.

    Raises:
        HanseError: INVALID_INPUT for a file that is none.
    """
    made = {}
    for path in sorted(folder.glob("*.json")):
        try:
            made[path.stem] = Measured.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise HanseError(ErrorCode.INVALID_INPUT, f"{path}: {explain(error)}") from None
    return made


def measured_section(record: Measured, pictures: str) -> str:
    """Of the page; `pictures` is the folder's name."""
    head, *rows = record.table
    parts = [f"## {record.title}\n", record.about + "\n", f"*`{record.command}`*\n", markdown(head, rows)]
    if record.picture is not None:
        parts.append(f"![{record.title}]({pictures}/{record.picture})\n")
    return "\n".join(parts)
