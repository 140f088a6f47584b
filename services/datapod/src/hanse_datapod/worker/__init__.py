"""Training in a process of its own: the agent's side (`port`, `process`, `shared`) and the worker's (`__main__`)."""

from hanse_datapod.worker.port import DataSummary, Worker, WorkOutcome, WorkRequest

__all__ = ["DataSummary", "WorkOutcome", "WorkRequest", "Worker"]
