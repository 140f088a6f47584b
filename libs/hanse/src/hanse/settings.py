"""A job's settings by their dotted names, as people compare them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ABOUT = ("name", "tags")
"""What a job says of itself, which is no setting."""


def flat_settings(job: Mapping[str, Any], *, all_of_it: bool = False) -> dict[str, Any]:
    """A job's settings, such as `train.optimizer.lr`; lists are values. `all_of_it`: of a section, whose name is one.
    Pure."""
    return _flat({key: value for key, value in job.items() if all_of_it or key not in _ABOUT})


def without_defaults(job: Mapping[str, Any]) -> dict[str, Any]:
    """What a job says otherwise than by default; all of it where a hub of a later release wrote it. Pure."""
    from pydantic import ValidationError

    from hanse_schemas.job import Job

    try:
        return Job.model_validate(job).model_dump(mode="json", exclude_defaults=True)
    except ValidationError:
        return dict(job)


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {path: value}
    under = (_flat(inner, f"{path}.{name}" if path else str(name)) for name, inner in value.items())
    return {name: found for each in under for name, found in each.items()}
