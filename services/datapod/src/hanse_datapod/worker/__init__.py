"""Training in a process of its own: `port` is what the agent asks, `client` the agent's side, `server` and
`work` the worker's, `pool` workers in other pods."""

from hanse_datapod.worker.port import DataSummary, Worker, WorkOutcome, WorkRequest

__all__ = ["DataSummary", "WorkOutcome", "WorkRequest", "Worker"]
