"""A job as it is submitted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hanse_schemas.job import Job, check_job, read_job_file


def read_job(job: str | Path | Mapping[str, Any] | Job) -> dict[str, Any]:
    """A job from a YAML file's path, a mapping, or a Job; checked before anything is sent.

    Raises:
        HanseError: INVALID_INPUT naming each field, its value and what was expected.
    """
    if isinstance(job, Job):
        checked = job
    elif isinstance(job, Mapping):
        checked = check_job(dict(job))
    else:
        checked = read_job_file(Path(job))
    body = checked.model_dump(mode="json", exclude_defaults=True)
    if checked.study is None:
        body["rounds"] = checked.rounds  # training always says how many, also where it is one
    else:  # and a study of how many cohorts: what is usual for training is few for it
        body["participants"] = {**body.get("participants", {}), "minimum": checked.participants.minimum}
    if checked.privacy is not None and checked.privacy.metrics is not None:  # where unsaid it is after the last round
        body["evaluate"] = {**body.get("evaluate", {}), "every": checked.evaluate.every}
    return body
