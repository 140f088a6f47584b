"""Writes a study's report, and its plots for papers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_genomics.report.figures import DARK, LIGHT, manhattan, quantile_plot, rendered
from hanse_genomics.report.page import page
from hanse_genomics.results.table import Results

REPORT = "report.html"


def write_report(results: Results, folder: Path, run: Mapping[str, Any] | None = None) -> Path:
    """Write `report.html`, and `manhattan` and `qq` as .png and .pdf.

    Args:
        run: what is known of the run; see `hanse_genomics.report.page`.

    Returns:
        the report's path.

    Raises:
        HanseError: NOT_FOUND when matplotlib is not installed; NO_SPACE when a file cannot be written.
    """
    images = {}
    try:
        for name, draw in (("manhattan", manhattan), ("qq", quantile_plot)):
            bright = draw(results, LIGHT)
            images[name] = (rendered(bright, "png", clear=True), rendered(draw(results, DARK), "png", clear=True))
            for form in ("png", "pdf"):
                (folder / f"{name}.{form}").write_bytes(rendered(bright, form))
        (folder / REPORT).write_text(page(results, run or {}, images), encoding="utf-8")
    except OSError as error:
        raise HanseError(ErrorCode.NO_SPACE, f"{folder}: cannot be written: {error.strerror}") from None
    return folder / REPORT
