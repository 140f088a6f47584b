"""The aggregator's settings."""

from __future__ import annotations

from pydantic import Field

from hanse_fabric.settings import ServiceSettings


class AggregatorSettings(ServiceSettings):
    """What the aggregator takes beside what every service takes."""

    reduce_threads: int = Field(
        default=2, ge=1, le=64, description="leaves of 8 MiB that one reduction works on at once; each takes 40 MiB"
    )
    reduce_device: str = Field(
        default="cpu",
        pattern=r"^(cpu|auto|cuda(:\d{1,2})?|torch-cpu)$",
        description="what plain updates are combined on: cpu, cuda or cuda:N (needs torch; the same bits, or it is not "
        "used), auto (a CUDA device where torch sees one)",
    )
    reduce_jobs: int = Field(
        default=1, ge=1, le=16, description="reductions of stored updates done at once; more are left to replicas"
    )
