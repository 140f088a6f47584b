"""Training and reducing on a device that is not the processor: nothing is mixed up, and nothing is left behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forked_workers import Nursery
from hanse_fabric.plugins import ALGORITHMS, built_in

SCRIPT = Path(__file__).with_name("far_device.py")
Found = dict[str, Any]
PLAIN = {"fedavg", "fedsgd", "fedfgd", "fedsmb", "fedcmb"}


@pytest.fixture(scope="module")
def found(worker_nursery: Nursery) -> Found:
    """What the stand-in's process says: torch knows one such device for good once it was registered."""
    done = worker_nursery.run(f"import runpy; runpy.run_path({str(SCRIPT)!r}, run_name='__main__')")
    assert done.returncode == 0, done.stderr
    answer: Found = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_the_tests_stand_in_for_a_gpu_refuses_what_a_gpu_refuses(found: Found) -> None:
    assert len(found["refused"]) == 2


def test_every_algorithm_trains_on_a_device_of_its_own_and_keeps_what_it_needs(found: Found) -> None:
    assert {name.partition("-")[0] for name in found["same"]} >= {
        plugin.name for plugin in built_in(ALGORITHMS)
    } - PLAIN
    assert found["same"] == dict.fromkeys(found["same"], True)


def test_reductions_on_a_device_of_its_own_have_numpys_bits(found: Found) -> None:
    assert found["reductions"] == []
