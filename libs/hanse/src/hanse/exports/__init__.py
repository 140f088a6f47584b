"""Runs in the trackers that people have: MLflow, TensorBoard, Weights & Biases.

    run.export("mlflow", into="sqlite:///mlflow.db", model="best", register="triage")

Each tracker's package is loaded when a run goes there, and not before. What goes is what the owner sees of a run:
settings, metrics by round, tags; metrics of single sites where they are asked for. Nothing that a tracker would tell of
this machine by itself (telemetry, installed packages, its load) is left on.
"""

from hanse.exports.of_run import export_run
from hanse.exports.wanted import Wanted

__all__ = ["Wanted", "export_run"]
