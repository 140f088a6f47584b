"""The ring of a masked sum has room for the noise that is in it."""

from __future__ import annotations

from typing import Any

from hanse_schemas.job import Job, check_job
from hanse_workflows.masking.protocols import plan_of


def job(**privacy: Any) -> Job:
    noise = {"placement": "distributed", "mechanism": "discrete_laplace", "noise": "distributed-gamma"} | privacy
    body = {"rounds": 1, "model": {"name": "linear"}, "weighting": "uniform", "participants": {"minimum": 3}}
    return check_job(body | {"secure_aggregation": {"mode": "compensator"}} | ({"privacy": noise} if privacy else {}))


def test_the_ring_has_room_for_the_noise() -> None:
    rings = []
    for each in (job(), job(noise_multiplier=1.0), job(noise_multiplier=1e4)):
        assert each.secure_aggregation is not None
        rings.append(plan_of(each, each.secure_aggregation, 4).default)
    assert rings[0].tail == 0 < rings[1].tail < rings[2].tail
    assert rings[0].fraction > rings[2].fraction
