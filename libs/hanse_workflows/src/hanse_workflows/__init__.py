"""Workflows: what happens in a run, as plain functions over the port `Verbs`, and what they have in common."""

from __future__ import annotations

from hanse_privacy.joint import Computation, JointOutcome
from hanse_workflows.ask import Ask
from hanse_workflows.failures import RunFailure
from hanse_workflows.first_model import first_model
from hanse_workflows.gathering import exchange, gather
from hanse_workflows.joint_sums import Computing, JointSums
from hanse_workflows.next_model import reduce, sum_masked
from hanse_workflows.verbs import Verbs
from hanse_workflows.workflow import Workflow

__all__ = [
    "Ask", "Computation", "Computing", "JointOutcome", "JointSums", "RunFailure", "Verbs", "Workflow", "exchange",
    "first_model", "gather", "reduce", "sum_masked",
]  # fmt: skip
