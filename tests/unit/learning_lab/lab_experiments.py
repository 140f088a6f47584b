"""Tiny experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hanse_lab.cells import Cell, cells_of
from hanse_lab.experiment import Experiment
from hanse_lab.play import CellOutcome, play


def experiment(**changed: Any) -> Experiment:
    """Logistic regression on digits at five sites, one seed, two rounds, but for what is said."""
    body: dict[str, Any] = {
        "name": "tiny", "title": "Tiny", "sites": 5, "partitions": {"IID": {"name": "iid"}}, "seeds": [1], "rounds": 2,
        "model": {"name": "logistic"}, "train": {"optimizer": {"lr": 0.1}}, "algorithms": {"FedAvg": {}},
    }  # fmt: skip
    return Experiment.model_validate(body | changed)


def cells(**changed: Any) -> list[Cell]:
    return cells_of(experiment(**changed), Path())


def played(**changed: Any) -> dict[str, CellOutcome]:
    """Outcomes by algorithm, of an experiment with one column and seed."""
    return {cell.algorithm: play(cell.task) for cell in cells(**changed)}
