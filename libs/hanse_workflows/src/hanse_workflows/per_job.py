"""What follows from a job alone is worked out once, though it is asked for in every round."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from hanse_schemas.job import Job

T = TypeVar("T")


def per_job(follows: Callable[[Job], T]) -> Callable[[Job], T]:
    """The same function, which remembers its result as long as the job object is there. A job is never changed; results
    are shared, so they are not changed either."""
    known: dict[int, T] = {}

    @wraps(follows)
    def remembered(job: Job) -> T:
        key = id(job)
        if key not in known:
            known[key] = follows(job)
            weakref.finalize(job, known.pop, key, None)
        return known[key]

    return remembered
