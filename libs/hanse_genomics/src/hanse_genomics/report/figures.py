"""The Manhattan and the quantile-quantile plot, for a bright page, a dark page and a paper."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.wheels import to_install
from hanse_genomics.compare.agreement import GENOME_WIDE, bonferroni
from hanse_genomics.files.snps import LABELS
from hanse_genomics.hub.collecting import inflation
from hanse_genomics.report.points import genome, quantiles, thinned
from hanse_genomics.results.table import Results

_LABELLED = 8
_DPI = 160


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours: of text and axes, of odd and even chromosomes, of hits, of lines and bands."""

    ink: str
    odd: str
    even: str
    hit: str
    line: str
    band: str


LIGHT = Theme("#1c2530", "#1d5a8f", "#74a3c7", "#c2410c", "#5b6672", "#d5dee7")
DARK = Theme("#e4e9ee", "#7db4e6", "#3f78a8", "#fb923c", "#9aa7b4", "#33404d")


def manhattan(results: Results, theme: Theme) -> Any:
    """-log10 p along the genome, as a matplotlib figure; hits at 5e-8 stand out, and the first of them have names.

    Raises:
        HanseError: NOT_FOUND when matplotlib is not installed.
    """
    figure, axes = _figure(9.6, 3.9, theme)
    y = -results.column("log10_p")
    place = genome(results.snps.code, results.snps.position)
    drawn = thinned(place.x, y)
    hits = drawn[y[drawn] >= -np.log10(GENOME_WIDE)]
    for which, colour in enumerate((theme.odd, theme.even)):
        chosen = [code for at, code in enumerate(place.code) if at % 2 == which]
        mine = drawn[np.isin(results.snps.code[drawn], chosen)]
        axes.scatter(place.x[mine], y[mine], s=5, color=colour, linewidths=0)
    axes.scatter(place.x[hits], y[hits], s=16, color=theme.hit, linewidths=0, zorder=3)
    axes.axhline(-np.log10(GENOME_WIDE), color=theme.hit, linewidth=0.9, linestyle="--")
    tested = int(results.tested.sum())
    axes.axhline(-np.log10(bonferroni(tested)), color=theme.line, linewidth=0.8, linestyle=":")
    taken: list[tuple[float, float]] = []
    for at in hits[np.argsort(-y[hits])].tolist():
        if len(taken) < _LABELLED and all(abs(place.x[at] - x) > 0.035 for x, _ in taken):
            taken.append((place.x[at], y[at]))
            axes.annotate(
                results.snps.name[at], (place.x[at], y[at]), xytext=(4, 3), textcoords="offset points",
                fontsize=7.5, color=theme.ink,
            )  # fmt: skip
    axes.set_xticks(place.centres, [LABELS[code] for code in place.code], fontsize=7.5)
    axes.set_xlim(-0.01, max(place.x.max(initial=0.0), 0.0) + 0.015)
    highest = float(np.nanmax(y, initial=0.0)) if len(drawn) else 0.0
    axes.set_ylim(0, max(highest * 1.1, 1.08 * -np.log10(min(GENOME_WIDE, bonferroni(tested)))))
    axes.set_xlabel("chromosome")
    axes.set_ylabel("$-\\log_{10}\\,p$")
    return figure


def quantile_plot(results: Results, theme: Theme) -> Any:
    """Observed over expected -log10 p, with the band of chance, as a matplotlib figure.

    Raises:
        HanseError: NOT_FOUND when matplotlib is not installed.
    """
    figure, axes = _figure(4.4, 4.2, theme)
    log10_p = results.column("log10_p")
    found = quantiles(-log10_p)
    if len(found.expected):
        top = float(found.expected[0])
        axes.fill_between(found.expected, found.low, found.high, color=theme.band, linewidth=0)
        axes.plot([0, top], [0, top], color=theme.line, linewidth=0.9)
        axes.scatter(found.expected, found.observed, s=7, color=theme.odd, linewidths=0, zorder=3)
    if (inflated := inflation(log10_p)) is not None:
        text = f"$\\lambda$ = {inflated:.3f}"
        axes.text(0.04, 0.94, text, transform=axes.transAxes, va="top", color=theme.ink)
    axes.set_xlabel("expected $-\\log_{10}\\,p$")
    axes.set_ylabel("observed $-\\log_{10}\\,p$")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    return figure


def rendered(figure: Any, form: str, *, clear: bool = False) -> bytes:
    """A figure's bytes, the same for the same results.

    Args:
        form: `png` or `pdf`.
        clear: without a background, for pages that have one.
    """
    into = io.BytesIO()
    metadata = {"CreationDate": None} if form == "pdf" else {"Software": None}
    figure.savefig(into, format=form, dpi=_DPI, transparent=clear, metadata=metadata)
    figure.set_layout_engine("none")  # where all stands is reckoned once, which took half of each further form
    return into.getvalue()


def _figure(width: float, height: float, theme: Theme) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise HanseError(
            ErrorCode.NOT_FOUND, "matplotlib: not installed", hint=to_install("hanse-genomics[report]")
        ) from None
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(theme.line)
    axes.tick_params(colors=theme.ink, labelsize=8)
    axes.xaxis.label.set_color(theme.ink)
    axes.yaxis.label.set_color(theme.ink)
    return figure, axes
