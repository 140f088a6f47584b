"""Small tables that read well in a terminal and in a notebook."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.wheels import to_install


def harmless(text: str) -> str:
    """What a site, or anybody else, wrote, for a terminal: one line, in which what is no letter, sign or space is
    spelled out (`\\x1b`). Else a name could erase lines, make others, or turn the order of letters round."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or unicodedata.category(letter) == "Zs" else _spelled(letter) for letter in text
    )


def _spelled(letter: str) -> str:
    return letter.encode("unicode_escape").decode()


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under a header."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __str__(self) -> str:
        widths = self._widths()
        return "\n".join(
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
            for line in self._lines()
        )

    @property
    def width(self) -> int:
        """Letters of its longest line."""
        widths = self._widths()
        return sum(widths) + 2 * (len(widths) - 1)

    def turned(self) -> Table:
        """The same with a column for each row."""
        header, *rows = zip(self.header, *self.rows, strict=True)
        return Table(header, rows)

    def _lines(self) -> list[Sequence[str]]:
        lines = [self.header, *self.rows] if any(self.header) else self.rows
        return [[harmless(text) for text in line] for line in lines]

    def _widths(self) -> list[int]:
        return [max(map(len, column)) for column in zip(*self._lines(), strict=True)]

    def html(self) -> str:
        """The table for a notebook, with all text escaped."""
        head = "".join(f"<th>{html.escape(text)}</th>" for text in self.header)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>" for row in self.rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def metrics_table(rounds: Sequence[Mapping[str, Any]]) -> Any:
    """Rounds' metrics as a pandas DataFrame indexed by round; `bytes_down` and `bytes_up` where the hub counted them.

    Raises:
        HanseError: NOT_FOUND when pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise HanseError(ErrorCode.NOT_FOUND, "pandas: not installed", hint=to_install("hanse[notebook]")) from None
    frame = pandas.DataFrame([
        {
            "round": item["round"],
            **(item.get("metrics") or {}),
            **{f"bytes_{way}": size for way, size in (item.get("bytes") or {}).items()},
        }
        for item in rounds
    ])  # fmt: skip
    return frame.set_index("round") if len(frame) else frame
