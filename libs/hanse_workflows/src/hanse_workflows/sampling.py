"""Who of those that are there takes part in a round: the one place where that is drawn."""

from __future__ import annotations

import math
import random

from hanse_fabric.errors import ErrorCode
from hanse_fabric.names import derive_seed
from hanse_schemas.job import Job
from hanse_workflows.failures import RunFailure

LARGEST_COHORT = 4_000
"""Participants of one round: their answers are one entry of the journal (deflated: 72 bytes each with two metrics, 215
with the longest names and eight), which is one message of the bus (1 MiB). Projects may have any number, of whom a
round samples its share."""
LARGEST_MASKED_COHORT = 2_500
"""The same where answers are masked: each has a sealed seed and a tally besides (300 bytes, at most 400)."""


def sample(present: tuple[str, ...], job: Job, number: int) -> tuple[str, ...]:
    """A round's participants, sorted: the job's share of those present, by the run's seed. Pure.

    Raises:
        RunFailure: TOO_LARGE for more than a round can have.
    """
    count = job.participants.sampled(len(present))
    most = LARGEST_COHORT if job.secure_aggregation is None else LARGEST_MASKED_COHORT
    if count > most:
        raise RunFailure(
            ErrorCode.TOO_LARGE,
            f"participants: {count} of {len(present)} would take part in a round, at most {most} can",
            hint=f"set participants.fraction to {math.floor(10_000 * most / len(present)) / 10_000:.4f} or less",
        )
    if count == len(present):
        return present
    chooser = random.Random(derive_seed(job.seed, number, "sample"))  # noqa: S311 - repeatable, not secret
    return tuple(sorted(chooser.sample(present, count)))
