"""What an operator may set about runs. The service's settings are the edge; this is what the workflows read."""

from __future__ import annotations

from dataclasses import dataclass, field

from hanse_coordinator.verbs.reduction_jobs import ReductionLimits
from hanse_fabric.messages import INLINE_LIMIT


@dataclass(frozen=True, slots=True)
class WorkflowSettings:
    """Settings of the workflows.

    Attributes:
        instance: this coordinator's name, unlike any other replica's, and the same after its restart.
        lease_ttl: seconds without a renewal after which a run's lease is free.
        reduce: limits of reductions.
        publish_timeout: seconds to wait for the model registry before a run fails.
        largest_model: bytes that a first model or its upload may have.
        inline_limit: models up to so many bytes travel inside tasks.
        tasks: bytes that the open tasks of one project may have, as each coordinator has sent them; 0: no limit.
        journals: bytes that the journals of one project's runs may have, ended ones, too; 0: no limit.
        inline_total: ... unless all tasks of a step together carry more than so many bytes.
    """

    instance: str = "coordinator"
    lease_ttl: float = 3.0
    reduce: ReductionLimits = field(default_factory=ReductionLimits)
    publish_timeout: float = 600.0
    largest_model: int = 64 << 30
    inline_limit: int = INLINE_LIMIT
    inline_total: int = 16 << 20
    journals: int = 0
    tasks: int = 0
