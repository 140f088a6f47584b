"""Pictures that are written into files, by matplotlib where it is installed."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.wheels import to_install

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def installed(name: str) -> Any:
    """A package of `hanse[notebook]`.

    Raises:
        HanseError: NOT_FOUND where it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        raise HanseError(ErrorCode.NOT_FOUND, f"{name}: not installed", hint=to_install("hanse[notebook]")) from None


def tidy(axes: Axes) -> None:
    """No frame above and to the right; a faint grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure as SVG, PNG or PDF, by the file's ending.

    Raises:
        HanseError: INVALID_INPUT for another ending, or where it cannot be written.
    """
    file = Path(path)
    if file.suffix not in (".svg", ".png", ".pdf"):
        raise invalid("path", str(file), "a file that ends with .svg, .png or .pdf")
    try:
        figure.savefig(file)
    except OSError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"{file}: it cannot be written: {error.strerror}") from None
    return file


def draw_curves(curves: Mapping[str, Any], path: str | Path, labels: Sequence[str] = ()) -> Path:
    """Draw ROC, precision by recall and calibration, as far as they are there.

    Args:
        curves: of `History.curves`.
        labels: what the classes are called, in their order.

    Raises:
        HanseError: NOT_FOUND where matplotlib is not installed; INVALID_INPUT where none is there, or as `save`.
    """
    there = [name for name in ("roc", "precision_recall", "calibration") if curves.get(name)]
    if not there:
        raise invalid(
            "curves", "none", "an evaluation that has some", hint="evaluate.metrics: [auroc, brier] asks for them"
        )
    installed("matplotlib")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.5 * len(there), 4.5), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(there), squeeze=False)[0], there, strict=True):
        if name == "calibration":
            points = [(row["predicted"], row["observed"]) for row in curves[name]]
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3)
            axes.set(title="calibration", xlabel="predicted", ylabel="observed")
        else:
            for at, points in curves[name].items():
                label = labels[int(at)] if int(at) < len(labels) else str(at)
                axes.plot(*zip(*points, strict=True), label=label)
            axes.legend(frameon=False, title="class")
            x, y = ("false positive rate", "true positive rate") if name == "roc" else ("recall", "precision")
            axes.set(title="ROC" if name == "roc" else "precision by recall", xlabel=x, ylabel=y)
        if name != "precision_recall":
            axes.plot((0, 1), (0, 1), color="0.7", linewidth=1, zorder=0)
        axes.set(xlim=(0, 1), ylim=(0, 1.02))
        tidy(axes)
    return save(figure, path)
