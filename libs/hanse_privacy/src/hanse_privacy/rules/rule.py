"""What a rule is, and to which jobs its condition applies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hanse_fabric.messages.privacy import Privacy
from hanse_schemas.job import Job
from hanse_schemas.secure_aggregation import SecureAggregation

Condition = Callable[[Job], str | None]
"""What of a job violates a rule, or None."""


@dataclass(frozen=True, slots=True)
class PrivacyRule:
    """A combination that is refused.

    Attributes:
        one, other: what is combined, as the table of the documentation names it.
        reason: why not.
        hint: what to do instead.
        found: what of a job violates it (field and value), or None.
    """

    one: str
    other: str
    reason: str
    hint: str
    found: Condition


def masked(found: Callable[[Job, SecureAggregation], str | None]) -> Callable[[Job], str | None]:
    """A condition of jobs with `secure_aggregation`, which is given that section too."""
    return lambda job: None if job.secure_aggregation is None else found(job, job.secure_aggregation)


def private(found: Callable[[Job, Privacy], str | None]) -> Callable[[Job], str | None]:
    """A condition of jobs with `privacy`, which is given that section too."""
    return lambda job: None if job.privacy is None else found(job, job.privacy)


def studied(found: Callable[[Job], str | None]) -> Callable[[Job], str | None]:
    """A condition of association studies."""
    return lambda job: None if job.study is None else found(job)
